"""Profiling of a script: hooks record the framework calls of its steps in a ledger."""
