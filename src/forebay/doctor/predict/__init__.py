"""Predictions: Forebay changes the recorded timeline as a cure would, and simulates it."""
