"""Errors of a KerasFeed, its end, and how long it lives.

`tests/test_framework_cases.py` runs this file once for each backend, in its own process, because Keras cannot change
its backend.
"""

import gc
import weakref

import numpy as np
import pytest
from tests.adapters.keras.conftest import BATCH
from tests.adapters.keras.keras_models import make_model, not_torch

import forebay as fb
from forebay.errors import FeedClosedError


# If a map fails in the second step of an execution, Keras first warns that the data have ended.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=not_torch)])
def test_an_error_in_a_map_keeps_its_type(arrays, steps):
    def fail_late(batch):
        if batch[1][0, 0] >= 2 * BATCH:
            raise KeyError("no such row")
        return batch

    feed = fb.from_arrays(arrays).batch(BATCH).map(fail_late).feed("keras")
    with pytest.raises(KeyError, match="no such row"):
        make_model(steps_per_execution=steps).fit(feed, verbose=0)


def test_a_closed_feed_is_refused(pipeline):
    with pipeline.feed("keras") as feed:
        make_model().fit(feed, verbose=0)
    with pytest.raises(FeedClosedError):
        make_model().fit(feed, verbose=0)


@pytest.mark.parametrize("steps", [1, pytest.param(2, marks=not_torch)])
def test_the_model_does_not_keep_a_feed_alive(pipeline, steps):
    model = make_model(steps_per_execution=steps)
    feed = pipeline.feed("keras")
    model.fit(feed, verbose=0)
    gone = weakref.ref(feed)
    del feed
    gc.collect()
    assert gone() is None


def test_a_feed_can_be_iterated_in_a_loop(arrays, pipeline):
    batches = list(pipeline.feed("keras"))
    assert [len(batch) for batch in batches] == [2] * 5
    np.testing.assert_array_equal(np.concatenate([np.asarray(x) for x, _ in batches]), arrays[0])


def test_reports_come_during_fit(pipeline):
    found = []
    with pipeline.feed("keras") as feed:
        feed.on_stats(found.append, every=1)
        make_model().fit(feed, verbose=0)
        assert feed.received.rows == feed.stats()["rows"]
    assert found[-1]["batches"] == len(feed)
    assert sum(stats["interval"]["rows"] for stats in found) == found[-1]["rows"]
