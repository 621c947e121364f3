"""The state of a feed: it counts received batches, and another feed resumes from it."""

import json
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.received import batches_of, rows_of

import forebay as fb
from forebay.errors import FeedClosedError, StateError


def resume_feed(pipeline, state):
    feed = pipeline.feed("numpy")
    feed.load_state_dict(json.loads(json.dumps(state)))
    return feed


@given(rows=st.integers(1, 300), batch=st.integers(1, 40), part=st.floats(0, 1), passes=st.integers(1, 2))
def test_a_resumed_feed_yields_the_same_rest_and_the_same_next_epoch(rows, batch, part, passes):
    pipeline = fb.from_arrays(np.arange(rows)).shuffle(seed=4).batch(batch).repeat(passes)
    with pipeline.feed("numpy") as feed:
        iterator = iter(feed)
        for _ in range(round(part * len(feed))):
            next(iterator)
        state = feed.state_dict()
        rest, following = batches_of(iterator), batches_of(feed)
    with resume_feed(pipeline, state) as other:
        assert batches_of(other) == rest
        assert batches_of(other) == following


def test_state_counts_received_batches_and_not_prepared_batches():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    iterator = iter(feed)
    assert feed.state_dict()["position"] == 0
    next(iterator)
    assert feed.state_dict()["position"] == 10
    threading.Event().wait(0.05)
    assert feed.state_dict()["position"] == 10


def test_state_survives_leaving_the_loop():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    for step, _ in enumerate(feed):
        if step == 4:
            break
    assert feed.state_dict()["position"] == 50


def test_state_after_an_epoch_is_the_start_of_the_next():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    batches_of(feed)
    assert (feed.state_dict()["epoch"], feed.state_dict()["position"]) == (1, 0)


@given(rows=st.integers(1, 300), steps=st.integers(0, 5), unused=st.integers(1, 3))
def test_an_unused_iterator_does_not_use_up_an_epoch(rows, steps, unused):
    pipeline = fb.from_arrays(np.arange(rows)).shuffle(seed=4).batch(7)
    with pipeline.feed("numpy") as first:
        list(islice(first, steps))
        state = first.state_dict()
    with resume_feed(pipeline, state) as feed, resume_feed(pipeline, state) as other:
        for _ in range(unused):
            iter(feed)
            assert feed.state_dict() == state
        for _ in range(3):
            assert batches_of(feed) == batches_of(other)
            iter(feed)


def test_an_unused_iterator_does_not_restart_a_stream():
    starts = []

    def rows():
        starts.append(1)
        yield from range(6)

    with fb.from_generator(rows, spec=np.int64(0)).batch(2).feed("numpy") as feed:
        iter(feed), iter(feed)
        assert batches_of(feed) == [[0, 1], [2, 3], [4, 5]]
        assert feed.state_dict()["epoch"] == 1
        assert len(starts) == 1  # of three iterators


def test_an_iterator_that_ended_before_its_first_batch_does_not_use_up_an_epoch():
    feed = fb.from_arrays(np.arange(100)).shuffle(seed=4).batch(10).feed("numpy")
    iter(feed).close()
    assert feed.state_dict()["epoch"] == 0
    feed.set_epoch(0)
    assert batches_of(feed) == batches_of(fb.from_arrays(np.arange(100)).shuffle(seed=4).batch(10).feed("numpy"))


def test_a_failed_first_batch_uses_up_the_epoch():
    def fail(row):
        raise ValueError(row)

    feed = fb.from_arrays(np.arange(4)).batch(2).feed("numpy")
    feed.set_epoch(5)
    feed._parts = replace(feed._parts, hand_off=type("Failing", (), {"hand_off": staticmethod(fail)})())
    with pytest.raises(ValueError, match="array"):
        next(iter(feed))
    iter(feed)
    assert feed.state_dict()["epoch"] == 6


@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_feed_resumes_in_mid_epoch_on_another_number_of_shards(counts, steps):
    def shards(count):
        return [fb.from_arrays(np.arange(1000)).shuffle(seed=6).shard(index, count).batch(16) for index in range(count)]

    feeds = [pipeline.feed("numpy") for pipeline in shards(counts[0])]
    seen = [row for feed in feeds for _, batch in zip(range(steps), feed, strict=False) for row in batch.tolist()]
    for pipeline in shards(counts[1]):
        seen += rows_of(resume_feed(pipeline, feeds[0].state_dict()))
    assert sorted(seen) == list(range(1000))


def test_a_feed_with_another_batch_size_resumes_at_the_same_row():
    source = fb.from_arrays(np.arange(1000)).shuffle(seed=6)
    feed = source.batch(100).feed("numpy")
    first = rows_of(islice(feed, 3))
    rest = rows_of(resume_feed(source.batch(7), feed.state_dict()))
    assert sorted(first + rest) == list(range(1000))


def test_a_state_of_another_pipeline_is_refused():
    state = fb.from_arrays(np.arange(1000)).shuffle(seed=1).batch(10).feed("numpy").state_dict()
    with pytest.raises(StateError, match="another pipeline"):
        fb.from_arrays(np.arange(1000)).shuffle(seed=2).batch(10).feed("numpy").load_state_dict(state)


def test_a_state_beyond_the_data_is_refused():
    feed = fb.from_arrays(np.arange(1000)).batch(10).feed("numpy")
    with pytest.raises(StateError, match="beyond the 1000 rows"):
        feed.load_state_dict(feed.state_dict() | {"position": 5000})


STATE = {"version": 1, "pipeline": "0550d854d9f53424", "epoch": 1}
WRONG_STATES = {
    "JSON text": (
        json.dumps(STATE),
        r"the state is a str, not a dict\. Decode it first: json\.loads\(state\)",
    ),
    "JSON bytes": (json.dumps(STATE).encode(), "the state is a bytes"),
    "a checkpoint": (
        {"model": {"w": 1}, "feed": STATE},
        r"the keys 'model', 'feed'\. Pass the state of the feed: checkpoint\['feed'\]",
    ),
    "a path": (Path("feed.json"), "'feed.json' is not a state. If it is the name of a file, read the file"),
    "the name of a file": ("feed.json", "If it is the name of a file, read the file"),
    "another dict": ({"model": {"w": 1}}, "is not a state of this version"),
}


@pytest.mark.parametrize("case", WRONG_STATES)
def test_a_value_that_is_not_a_state_is_refused_with_what_to_pass(case):
    state, message = WRONG_STATES[case]
    with fb.from_arrays(np.arange(4)).batch(2).feed("numpy") as feed, pytest.raises(StateError, match=message):
        feed.load_state_dict(state)


def test_a_closed_feed_refuses_a_position_and_its_repr_contains_closed():
    feed = fb.from_arrays(np.arange(4)).batch(2).feed("numpy")
    state = feed.state_dict()
    feed.close()
    assert repr(feed) == "Feed(numpy on cpu, 2 batches of 2 rows, closed)"
    for call in (lambda: feed.load_state_dict(state), lambda: feed.set_epoch(1)):
        with pytest.raises(FeedClosedError, match="the feed was closed: make a new one"):
            call()
