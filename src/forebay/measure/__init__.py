"""Measure this machine (`probe`), compare Forebay with other loaders (`bench`), and simulate clusters (`simulate`)."""
