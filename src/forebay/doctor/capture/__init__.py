"""Profiles a script: hooks in its frameworks write to a ledger until enough steps were recorded."""
