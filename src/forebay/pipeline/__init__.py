"""The description of a feed, its validation, and its plan."""
