"""The rules, one a file: `examine(case)` gives the findings of one cause. Each has a script with the fault and a twin."""
