"""A feed as the loader that a trainer expects."""
