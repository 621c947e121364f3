"""Hooks: packages for frameworks, modules for Forebay and Python, and shared modules.

When the script has imported a framework, the session imports the hooks of this framework and calls their `install`.
"""
