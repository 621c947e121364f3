"""The batches and the rows that a feed yields, as lists."""

import json


def batches_of(feed):
    """Return the batches of the next epoch."""
    return [batch.tolist() for batch in feed]


def rows_of(feed):
    """Return the rows of the next epoch."""
    return [row for batch in feed for row in batch.tolist()]


def collect_rows(feed, rows):
    """Add the rows of the next epoch to `rows`. The list keeps them if the feed raises an error."""
    for batch in feed:
        rows.extend(batch.tolist())


def resumed_rows(pipeline, state):
    """Return the rows of a new feed that resumes from a state. JSON stores the state in between."""
    with pipeline.feed("numpy") as feed:
        feed.load_state_dict(json.loads(json.dumps(state)))
        return rows_of(feed)
