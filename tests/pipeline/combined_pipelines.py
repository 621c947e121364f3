"""Pipelines to combine, and functions that read combined pipelines."""

import json

import numpy as np
from tests.support.received import rows_of

import forebay as fb

ROWS = fb.from_arrays(np.arange(10))
PAIR = [fb.from_arrays(np.arange(10)), fb.from_arrays(np.arange(20))]


def epoch_of(pipeline, epoch=0):
    """Return the rows of one epoch in their order."""
    with pipeline.batch(7).feed("numpy") as feed:
        feed.set_epoch(epoch)
        return rows_of(feed)


def resume_feed(pipeline, state):
    feed = pipeline.feed("numpy")
    feed.load_state_dict(json.loads(json.dumps(state)))
    return feed
