"""Where maps run: in the threads of the feed, or in worker processes."""
