"""Emulation of cures: replaces the calls of one target line while the script runs again.

All other calls run as written. `batches` and `transfers` implement the kinds of emulation. One module per framework
lists the calls to replace. The hooks of the doctor wrap the replacements, so the hooks still record the calls of the
script and find its steps.
"""
