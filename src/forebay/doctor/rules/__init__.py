"""The rules, one per file: `examine(view)` yields the findings of one cause."""
