"""`skip` and `filter` of streams choose the right rows, read lazily and resume exactly."""

from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.received import resumed_rows, rows_of

import forebay as fb
from forebay.errors import PipelineError, SourceError
from forebay.sources.streams import choices


def stream(length=40):
    return fb.from_generator(lambda: iter(np.arange(length)), spec="int64")


def is_multiple(divisor):
    return lambda rows: rows % divisor == 0


def epoch_of(pipeline, epoch=0):
    with pipeline.feed("numpy") as feed:
        feed.set_epoch(epoch)
        return rows_of(feed)


METHODS = {
    "skip": lambda pipeline, rows, number: (pipeline.skip(number), rows[number:]),
    "take": lambda pipeline, rows, number: (pipeline.take(number + 1), rows[: number + 1]),
    "repeat": lambda pipeline, rows, number: (pipeline.repeat(2), rows * 2),
    "filter": lambda pipeline, rows, number: (
        pipeline.filter(is_multiple(number + 1)),
        [row for row in rows if row % (number + 1) == 0],
    ),
}


@st.composite
def chains(draw):
    """Draw a stream with up to four methods applied, and its rows."""
    length = draw(st.integers(1, 40))
    pipeline, rows = stream(length), list(range(length))
    for method in draw(st.lists(st.sampled_from(sorted(METHODS)), min_size=1, max_size=4)):
        pipeline, rows = METHODS[method](pipeline, rows, draw(st.integers(0, 5)))
    return pipeline, rows


@given(chain=chains(), batch=st.integers(1, 50))
def test_every_epoch_has_the_rows_of_the_model(chain, batch):
    pipeline, rows = chain
    assert epoch_of(pipeline.batch(batch)) == epoch_of(pipeline.batch(batch), 3) == rows


@given(chain=chains(), shards=st.integers(2, 3), batch=st.integers(1, 4))
def test_shards_take_the_rows_in_turn(chain, shards, batch):
    pipeline, rows = chain
    for index in range(shards):
        assert epoch_of(pipeline.shard(index, shards).batch(batch)) == rows[index::shards]


@given(chain=chains(), counts=st.tuples(st.integers(1, 3), st.integers(1, 3)), data=st.data())
def test_a_state_resumes_on_another_number_of_shards(chain, counts, data):
    pipeline, rows = chain
    steps = data.draw(st.integers(0, max(0, len(rows) // counts[0] - 1)))
    with pipeline.shard(0, counts[0]).batch(1).feed("numpy") as feed:
        for _ in islice(feed, steps):
            pass
        state = feed.state_dict()
    rest = rows[state["position"] :]
    for index in range(counts[1]):
        assert resumed_rows(pipeline.shard(index, counts[1]).batch(1), state) == rest[index :: counts[1]]


class Counting:
    """An iterator with a state, which records how many rows it has yielded."""

    def __init__(self, length):
        self.length, self.next_row, self.yielded = length, 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next_row >= self.length:
            raise StopIteration
        self.next_row, self.yielded = self.next_row + 1, self.yielded + 1
        return np.int64(self.next_row - 1)

    def state_dict(self):
        return {"next": self.next_row}

    def load_state_dict(self, state):
        self.next_row = state["next"]


@given(steps=st.integers(2, 8), skipped=st.integers(0, 9), divisor=st.integers(1, 4))
def test_an_iterator_with_a_state_resumes_with_a_replay_of_one_batch(steps, skipped, divisor):
    iterators = []

    def make():
        iterators.append(Counting(100))
        return iterators[-1]

    pipeline = fb.from_generator(make, spec="int64").skip(skipped).filter(is_multiple(divisor)).batch(3)
    expected = [row for row in range(skipped, 100) if row % divisor == 0]
    with pipeline.feed("numpy") as feed:
        for _ in islice(feed, steps):
            pass
        state = feed.state_dict()
    iterators.clear()
    assert resumed_rows(pipeline, state) == expected[3 * steps :]
    assert iterators[0].yielded <= 99 - expected[3 * (steps - 1) - 1]


def test_a_filter_reads_no_further_than_its_batch():
    read = []

    def make():
        for number in count():
            read.append(number)
            yield np.int64(number)

    reader = fb.from_generator(make, spec="int64").filter(is_multiple(10)).source.start(0)
    out = np.zeros(3, np.int64)
    assert reader.read([out]) == 3
    assert out.tolist() == [0, 10, 20]
    assert read[-1] == 20


def test_a_filter_of_a_stream_can_use_single_fields():
    pipeline = fb.from_generator(lambda: ({"x": i, "label": i % 3} for i in range(9)))
    kept = pipeline.filter(lambda label: label == 2, fields="label").batch(4)
    with kept.feed("numpy") as feed:
        assert [batch["x"].tolist() for batch in feed] == [[2, 5, 8]]


def test_the_specs_of_a_map_are_inferred_from_rows_that_are_kept():
    def only_large(row):
        assert row >= 20
        return row * 2

    kept = [stream().skip(20), stream().filter(lambda rows: rows >= 20)]
    assert [epoch_of(pipeline.map(only_large).batch(4)) for pipeline in kept] == [list(range(40, 80, 2))] * 2


def test_a_map_after_a_filter_that_keeps_nothing_is_refused():
    pipeline = stream().filter(lambda rows: rows < 0)
    assert epoch_of(pipeline.batch(4)) == []
    with pytest.raises(SourceError, match="kept none of the first 40 rows of the stream"):
        pipeline.map(np.negative).batch(4).feed("numpy")


def test_the_search_for_rows_of_an_endless_stream_is_bounded(monkeypatch):
    monkeypatch.setattr(choices, "_MAX_SAMPLE_ROWS", 100)
    endless = fb.from_generator(lambda: map(np.int64, count()), spec="int64")
    with pytest.raises(SourceError, match="kept none of the first 100 rows"):
        endless.filter(lambda rows: rows < 0).map(np.negative).batch(4).feed("numpy")
    sparse = endless.filter(is_multiple(60)).map(lambda row: row + 1).take(3)
    assert epoch_of(sparse.batch(4)) == [1, 61, 121]


def test_pipelines_with_different_choices_have_different_fingerprints():
    pipelines = [stream(), stream().skip(1), stream().skip(2), stream().filter(np.isfinite), stream().filter(np.isnan)]
    assert len({pipeline.fingerprint for pipeline in pipelines}) == len(pipelines)


def test_an_endless_repeat_of_rows_that_a_filter_leaves_out_raises_an_error():
    with pytest.raises(SourceError, match="never end"):
        epoch_of(stream().filter(lambda rows: rows < 0).repeat().batch(4))


def test_a_wrong_mask_raises_an_error_while_the_stream_is_read():
    with pytest.raises(PipelineError, match=r"returned int64\[\d+\] for \d+ rows"):
        epoch_of(stream().filter(lambda rows: rows).batch(4))


def test_skipping_all_rows_before_a_map_is_refused():
    stream = fb.from_generator(lambda: ({"y": np.int64(number)} for number in range(5)))
    with pytest.raises(SourceError, match=r"skip\(100\) leaves no row: the stream has only 5 rows"):
        next(iter(stream.skip(100).map(lambda row: row).batch(3).feed("numpy")))
