"""Images inside other files: one module for each format.

`forebay.core.registry` loads the module for the suffix of a file.
"""
