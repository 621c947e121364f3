"""Emulates a cure while a script runs: calls of one line are replaced, and all other calls run as written.

`batches` and `transfers` hold what each kind of emulation does. One module for each framework says which of its calls
are replaced. Emulations lie below the hooks, so the hooks still record the calls of the script and find its steps.
"""
