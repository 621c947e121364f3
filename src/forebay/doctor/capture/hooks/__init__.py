"""Hooks: a package for each framework, `forebay.py` for Forebay, and shared modules.

When the script has imported a framework, the session imports its hooks and calls `install`.
"""
