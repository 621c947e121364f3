"""Rows in a slot become the framework's own arrays, without a copy. One framework a file, imported on request."""
