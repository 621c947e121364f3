"""Emulation of cures: replaces the calls of one target line while the script runs again.

Most kinds of emulation replace no calls of other lines. The exceptions are RESIDENT, WORKERS and OFF. `batches`,
`transfers` and `emulator` implement the kinds. One module per framework lists the calls to replace. The hooks of the
doctor wrap the replacements, so the hooks still record the calls of the script and find its steps.
"""
