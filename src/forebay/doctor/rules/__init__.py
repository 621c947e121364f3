"""The rules, one a file: `examine(case)` gives the findings of one cause; each has a faulty script, and its twin."""
