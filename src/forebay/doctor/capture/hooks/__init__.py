"""Hooks: one package for each framework.

The session imports it after the script has imported the framework.
"""
