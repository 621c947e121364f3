"""Feeds for `fit`, `evaluate` and `predict` of Keras."""
