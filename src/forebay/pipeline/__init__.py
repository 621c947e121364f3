"""From a pipeline to a plan: the description, its validation, and how the feed will run."""
