"""Measurements of this machine (`probe`), comparisons with other loaders (`bench`), simulated clusters (`simulate`)."""
