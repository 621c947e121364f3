"""Feeds of streams, made by `from_generator()`."""

import json
import threading

import numpy as np
import pytest
from tests.support.received import batches_of, rows_of

import forebay as fb
from forebay.errors import PipelineError, SourceError, SpecError, StateError


def numbers(rows):
    return lambda: iter(range(rows))


# Rows and batches


def test_every_epoch_has_the_rows_of_a_generator_in_order():
    with fb.from_generator(numbers(100)).batch(7).feed("numpy") as feed:
        assert [rows_of(feed) for _ in range(3)] == [list(range(100))] * 3


def test_batches_keep_the_structure_of_the_rows():
    rows = [{"x": np.full(3, i, "f4"), "y": i} for i in range(5)]
    with fb.from_generator(lambda: rows).batch(5).feed("numpy") as feed:
        (batch,) = feed
    assert batch["x"].tolist() == [[i] * 3 for i in range(5)]
    assert batch["y"].tolist() == list(range(5))


def test_a_generator_that_reuses_its_array_loses_no_row():
    def reusing():
        row = np.empty(4)
        for i in range(50):
            row[:] = i
            yield row

    rows = rows_of(fb.from_generator(reusing).batch(10).map(lambda batch: batch).feed("numpy"))
    assert [row[0] for row in rows] == list(range(50))


def test_take_limits_an_endless_generator():
    def endless():
        number = 0
        while True:
            yield number
            number += 1

    assert rows_of(fb.from_generator(endless).take(25).batch(10).feed("numpy")) == list(range(25))
    assert len(list(zip(range(5), fb.from_generator(endless).batch(10).feed("numpy"), strict=False))) == 5


def test_a_short_last_batch_is_kept_or_dropped():
    assert [len(batch) for batch in batches_of(fb.from_generator(numbers(10)).batch(4).feed("numpy"))] == [4, 4, 2]
    dropped = fb.from_generator(numbers(10)).batch(4, drop_remainder=True).feed("numpy")
    assert [len(batch) for batch in batches_of(dropped)] == [4, 4]


def test_repeat_and_take_after_batch_count_passes_and_batches():
    feed = fb.from_generator(numbers(5)).batch(3).repeat(2).feed("numpy")
    assert batches_of(feed) == [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]
    assert batches_of(fb.from_generator(numbers(50)).batch(3).take(2).feed("numpy")) == [[0, 1, 2], [3, 4, 5]]


def test_batches_span_two_passes_if_repeat_comes_before_batch():
    assert batches_of(fb.from_generator(numbers(5)).repeat(2).batch(4).feed("numpy")) == [
        [0, 1, 2, 3],
        [4, 0, 1, 2],
        [3, 4],
    ]


def test_repeating_an_empty_generator_forever_raises_an_error():
    with pytest.raises(SourceError, match="yielded no"):
        batches_of(fb.from_generator(numbers(0), spec="int64").repeat().batch(4).feed("numpy"))


def test_a_shard_has_every_nth_row_of_a_stream():
    parts = [rows_of(fb.from_generator(numbers(50)).shard(index, 3).batch(4).feed("numpy")) for index in range(3)]
    assert parts == [list(range(50))[index::3] for index in range(3)]


def test_shards_of_a_stream_that_drop_the_remainder_take_the_same_number_of_steps():
    feeds = [
        fb.from_generator(numbers(5)).shard(index, 2).batch(3, drop_remainder=True).feed("numpy") for index in (0, 1)
    ]
    assert [len(batches_of(feed)) for feed in feeds] == [0, 0]


def test_closing_a_feed_closes_its_generator():
    closed = []

    def rows():
        try:
            yield from range(1000)
        finally:
            closed.append(True)

    feed = fb.from_generator(rows, spec="int64").batch(2).feed("numpy")
    next(feed)
    feed.close()
    assert closed == [True]


def test_the_first_batch_of_a_slow_generator_does_not_wait_for_a_whole_group():
    received_one = threading.Event()

    def slow():
        yield from range(2)
        assert received_one.wait(60)
        yield from range(2, 1000)

    with fb.from_generator(slow, spec="int64").batch(2).feed("numpy") as feed:
        assert next(iter(feed)).tolist() == [0, 1]
        received_one.set()


# Shuffles


def test_a_window_shuffle_yields_every_row_once_in_a_new_order():
    pipeline = fb.from_generator(numbers(2000)).shuffle(seed=1, window=8 * 300).batch(16)
    with pipeline.feed("numpy") as feed:
        epochs = [rows_of(feed) for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(2000))] * 2
    assert epochs[0] != epochs[1]
    assert rows_of(pipeline.feed("numpy")) == epochs[0]


def test_a_window_shuffle_moves_no_row_forward_beyond_its_window():
    rows = rows_of(fb.from_generator(numbers(2000)).shuffle(seed=1, window=8 * 300).batch(16).feed("numpy"))
    assert all(row < position + 300 + 16 for position, row in enumerate(rows))


def test_a_shuffle_of_a_stream_without_a_window_is_refused_with_an_example():
    with pytest.raises(PipelineError, match="window='64MB'"):
        fb.from_generator(numbers(10)).shuffle(seed=0)


# State


def test_a_generator_is_resumed_by_replay():
    pipeline = fb.from_generator(numbers(100)).shuffle(seed=3, window=200).batch(7)
    with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
        iterator = iter(feed)
        for _ in range(5):
            next(iterator)
        other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
        assert batches_of(iterator) == batches_of(other)
        assert batches_of(feed) == batches_of(other)


class Counter:
    """An iterator with `state_dict` and `load_state_dict`."""

    def __init__(self, rows, loads):
        self.next, self.rows, self.loads = 0, rows, loads

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == self.rows:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]
        self.loads.append(state["next"])


def test_an_iterator_with_a_state_is_resumed_from_its_state():
    loads = []
    pipeline = fb.from_generator(lambda: Counter(1000, loads), spec="int64").batch(7)
    with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
        iterator = iter(feed)
        for _ in range(60):
            next(iterator)
        other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
        assert batches_of(other) == batches_of(iterator)
    assert loads
    assert loads[-1] > 0


class LiveState(Counter):
    """A counter whose `state_dict` returns a dict that it keeps changing."""

    def __init__(self, rows):
        super().__init__(rows, [])
        self.state = {"next": 0}

    def __next__(self):
        row = super().__next__()
        self.state["next"] = self.next
        return row

    def state_dict(self):
        return self.state


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_resume_from_an_iterator_state_is_exact_at_every_step(steps, mapped):
    pipeline = fb.from_generator(lambda: LiveState(50)).batch(4)
    pipeline = pipeline.map(lambda batch: batch) if mapped else pipeline
    with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
        iterator = iter(feed)
        for _ in range(steps):
            next(iterator)
        other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
        assert rows_of(other) == list(range(steps * 4, 50))


def test_a_mapped_stream_can_be_fed_again_with_smaller_batches():
    rows = fb.from_generator(lambda: iter(range(10))).map(lambda row: row + 1)
    with rows.batch(8).feed("numpy"), rows.batch(2).feed("numpy") as feed:
        assert rows_of(feed) == list(range(1, 11))


def test_a_stream_shorter_than_its_saved_position_raises_an_error():
    rows = [100]
    pipeline = fb.from_generator(lambda: iter(range(rows[0])), spec="int64").batch(5)
    with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
        for _, _batch in zip(range(10), feed, strict=False):
            pass
        rows[0] = 20
        other.load_state_dict(feed.state_dict())
        with pytest.raises(StateError, match="ended after 20 rows"):
            batches_of(other)


# Specs


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(4, "f4"), r"row 3 .* expected float32\[3\], got float32\[4\]"),
        (np.zeros((3, 1), "f4"), r"row 3 .* expected float32\[3\], got float32\[3, 1\]"),
        (np.zeros(3, "f8"), r"row 3 .* expected float32\[3\], got float64\[3\]"),
        (1.0, r"row 3 .* expected float32\[3\]"),
        ("text", r"row 3 .* expected float32\[3\]"),
    ],
)
def test_the_error_names_a_row_that_does_not_match_the_spec(bad, message):
    rows = [np.zeros(3, "f4")] * 3 + [bad]
    with pytest.raises(SpecError, match=message):
        batches_of(fb.from_generator(lambda: iter(rows)).batch(2).feed("numpy"))


def test_the_error_names_a_field_that_does_not_match_the_spec():
    rows = [{"x": 1, "y": 2}, {"x": 1, "z": 2}]
    with pytest.raises(SpecError, match=r"row 1 .* expected the fields \['x', 'y'\], got \['x', 'z'\]"):
        batches_of(fb.from_generator(lambda: iter(rows)).batch(2).feed("numpy"))


def test_python_numbers_take_the_type_of_the_spec():
    feed = fb.from_generator(numbers(3), spec=fb.ArraySpec((), "float32")).batch(3).feed("numpy")
    assert next(feed).dtype == np.float32


def test_a_generator_object_is_refused_and_the_error_suggests_the_function():
    with pytest.raises(SpecError, match="without calling it"):
        fb.from_generator(iter(range(3)))


def test_an_empty_generator_without_a_spec_is_refused():
    with pytest.raises(SourceError, match="yielded no row"):
        fb.from_generator(numbers(0))


def test_a_second_feed_of_a_generator_may_have_smaller_batches():
    pipeline = fb.from_generator(lambda: iter(np.arange(10))).map(lambda row: row)
    with pipeline.batch(6).feed("numpy"), pipeline.batch(4).feed("numpy") as feed:
        assert [batch.tolist() for batch in feed] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
