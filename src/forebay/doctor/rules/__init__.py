"""The rules of the doctor: `examine(view)` of a rule module yields the findings of one cause."""
