"""The rules. Each module looks for one cause: its `examine(view)` yields the findings."""
