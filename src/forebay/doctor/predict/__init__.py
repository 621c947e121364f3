"""Predictions of the step time: a cure changes the recorded timeline, which is then simulated."""
