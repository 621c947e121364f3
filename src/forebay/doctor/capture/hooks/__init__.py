"""Hooks: one package for each framework, loaded after the script has imported the framework."""
