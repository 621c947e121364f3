"""Watching a script: hooks in its frameworks, a ledger of what they saw, and a window after which all of it is off."""
