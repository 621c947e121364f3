"""Predictions: the recorded timeline, changed as a cure would change it, and simulated."""
