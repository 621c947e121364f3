"""Feeds for several devices of one process: rows after a resume, and statistics."""

import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import PipelineError
from forebay.testing import SimulatedEngine


def pipeline_of(rows, batch, **options):
    return fb.from_arrays(np.arange(rows)).batch(batch, **options)


def open_feed(pipeline, count):
    return pipeline.feed("numpy", device=tuple(SimulatedEngine() for _ in range(count)))


def rows_in(batches):
    return [row for batch in batches for part in batch for row in np.asarray(part).tolist()]


def state_after(pipeline, batches):
    """Return the rows of the first batches on one device, and the state after them."""
    with pipeline.feed("numpy") as feed:
        seen = [row for batch in itertools.islice(feed, batches) for row in batch.tolist()]
        return seen, feed.state_dict()


def open_at(pipeline, count, state):
    """Return a feed at the position of a state; None if a device lacks rows."""
    with suppress(PipelineError):
        feed = open_feed(pipeline, count)
        feed.load_state_dict(state)
        return feed


@given(
    rows=st.integers(1, 60),
    first_batch=st.integers(1, 9),
    batches=st.integers(0, 6),
    device_batch=st.integers(1, 4),
    count=st.integers(1, 4),
)
@example(rows=10, first_batch=3, batches=1, device_batch=1, count=2)
def test_every_row_comes_once_after_a_resume_on_several_devices(rows, first_batch, batches, device_batch, count):
    seen, state = state_after(pipeline_of(rows, first_batch), batches)
    assume(state["epoch"] == 0)
    feed = open_at(pipeline_of(rows, device_batch * count), count, state)
    assume(feed is not None)
    with feed:
        assert sorted(seen + rows_in(feed)) == list(range(rows))
        assert sorted(rows_in(feed)) == list(range(rows))


def test_a_position_that_leaves_a_device_without_a_row_is_refused_and_changes_nothing():
    _, state = state_after(pipeline_of(10, 3), 1)
    with open_feed(pipeline_of(10, 2), 2) as feed:
        with pytest.raises(
            PipelineError, match=r"7 rows remain from position 3 on.*no row for 1 of 2 devices.*one device"
        ):
            feed.load_state_dict(state)
        assert sorted(rows_in(feed)) == list(range(10))


def test_a_limit_before_the_last_batch_needs_no_row_for_each_device():
    with open_feed(pipeline_of(9, 2).take(4), 2) as feed:
        assert sorted(rows_in(feed)) == list(range(8))


def test_statistics_are_those_of_whole_batches():
    with open_feed(pipeline_of(20, 4), 2) as feed:
        assert len(rows_in(itertools.islice(feed, 3))) == 12
        stats = feed.stats()
    assert (stats["batches"], stats["rows"], stats["nbytes"], stats["errors"]) == (3, 12, 12 * 8, 0)
    assert (stats["rank"], stats["shards"]) == (0, 1)
    assert [device["nbytes"] for device in stats["devices"]] == [48, 48]


def test_stats_have_the_shard_of_the_process_and_not_of_a_device():
    with open_feed(fb.from_arrays(np.arange(24)).shard(1, 3).batch(4), 2) as feed:
        assert (feed.stats()["rank"], feed.stats()["shards"]) == (1, 3)


def test_reports_come_after_whole_batches():
    found = []
    with open_feed(pipeline_of(20, 2), 2) as feed:
        stop = feed.on_stats(found.append, every=4)
        rows_in(feed)
        assert [stats["batches"] for stats in found] == [4, 8]
        assert found[0]["interval"]["rows"] == 8
    assert [stats["rows"] for stats in found] == [8, 16, 20]
    stop()
    with pytest.raises(PipelineError, match="pass a function"):
        feed.on_stats("log")
