"""The cases that `forebay bench` measures."""
