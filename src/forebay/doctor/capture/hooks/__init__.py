"""Hooks: a package for each framework, `forebay.py` for Forebay, and shared modules.

When the script has imported a framework, the session imports the hooks of this framework and calls their `install`.
"""
