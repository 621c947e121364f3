"""File formats: each module opens one format as a source."""
