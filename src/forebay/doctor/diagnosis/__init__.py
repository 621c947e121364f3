"""The diagnosis: the order of the findings, and the predicted gain of each cure."""
