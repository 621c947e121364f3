"""Pipelines for tests of methods that choose rows, and the rows that they deliver."""

import numpy as np
from tests.support.received import rows_of

import forebay as fb

TEN = fb.from_arrays(np.arange(10))
DATA = {"x": np.arange(12) * 10, "label": np.array([0, 1, 2] * 4), "image": np.zeros((12, 2, 2))}
STREAM = fb.from_generator(lambda: iter(range(10)))
BATCHES = fb.from_batches([np.arange(4)])


def rows(pipeline, field=None, epoch=0):
    with pipeline.batch(3).feed("numpy") as feed:
        feed.set_epoch(epoch)
        return rows_of(feed if field is None else [batch[field] for batch in feed])
