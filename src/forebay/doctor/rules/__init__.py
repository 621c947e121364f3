"""The rules of the doctor: one module for each cause of lost time.

`examine(view)` of a rule yields its findings. The modules `*_edits.py` make code for the cures in these findings.
"""
