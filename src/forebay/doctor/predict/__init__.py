"""Predictions of the step time: simulations of the recorded timeline with a cure."""
