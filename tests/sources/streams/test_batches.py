"""Feeds of ready-made batches, made by `from_batches()`."""

from itertools import islice

import numpy as np
import pytest
from tests.support.received import batches_of

import forebay as fb
from forebay.errors import PipelineError, SourceError, SpecError


def batches():
    return [{"x": np.full((rows, 2), rows, "f4")} for rows in (3, 3, 2)]


def test_ready_made_batches_pass_through():
    with fb.from_batches(batches()).feed("numpy") as feed:
        assert [len(batch["x"]) for batch in feed] == [3, 3, 2]
        assert len(feed) == 3
        assert [len(batch["x"]) for batch in feed] == [3, 3, 2]


def test_ready_made_batches_can_be_mapped_and_may_grow():
    loader = [np.arange(2), np.arange(500)]
    with fb.from_batches(loader).map(lambda batch: batch + 1).feed("numpy") as feed:
        assert [batch.tolist() for batch in feed] == [[1, 2], list(range(1, 501))]


def test_a_loader_that_reuses_its_memory_loses_no_batch():
    def loader():
        memory = np.empty(3)
        for i in range(20):
            memory[:] = i
            yield memory

    assert [batch[0] for batch in batches_of(fb.from_batches(loader).feed("numpy"))] == list(range(20))


def test_a_second_epoch_of_an_iterator_raises_an_error():
    with fb.from_batches(iter(batches())).feed("numpy") as feed:
        assert len(list(feed)) == 3
        with pytest.raises(SourceError, match="only one epoch"):
            list(feed)


def test_a_loader_is_iterated_once_per_epoch():
    class Loader:
        begun = 0

        def __iter__(self):
            type(self).begun += 1
            return iter([np.full(2, self.begun)])

    with fb.from_batches(Loader()).feed("numpy") as feed:
        assert [batches_of(feed) for _ in range(3)] == [[[1, 1]], [[2, 2]], [[3, 3]]]


def test_a_pipeline_of_ready_made_batches_makes_several_feeds():
    pipeline = fb.from_batches([np.arange(2)] * 3).map(lambda batch: batch + 1)
    for _ in range(2):
        with pipeline.feed("numpy") as feed:
            assert len(batches_of(feed)) == 3


def test_fields_of_ready_made_batches_are_matched_by_name():
    loader = [{"a": np.zeros(2), "b": np.ones(2)}, {"b": np.ones(2), "a": np.zeros(2)}]
    with fb.from_batches(loader).feed("numpy") as feed:
        assert [batch["a"].tolist() for batch in feed] == [[0, 0], [0, 0]]


def test_none_is_not_a_batch():
    with pytest.raises(SpecError, match="batch 1"):
        batches_of(fb.from_batches([np.zeros(2), None, np.ones(2)]).feed("numpy"))


@pytest.mark.parametrize("rows", [[3, 0, 2], [0, 3], [2, 0]])
def test_empty_batches_pass_through(rows):
    loader = [np.arange(count) for count in rows]
    assert batches_of(fb.from_batches(loader).feed("numpy")) == [batch.tolist() for batch in loader]


class StoppingLoader:
    """A loader of ten batches whose function raises StopIteration at the fourth."""

    def __len__(self):
        return 10

    def __iter__(self):
        return map(self.load, range(10))

    def load(self, number):
        return np.full(2, number) if number != 3 else next(iter(()))


def test_a_loader_that_ends_before_its_length_is_reported(caplog):
    with fb.from_batches(StoppingLoader()).feed("numpy") as feed:
        assert len(batches_of(feed)) == 3
    assert "the loader ended after 3 batches, but its length is 10" in caplog.text


def test_single_rows_are_refused_and_the_error_suggests_from_generator():
    with pytest.raises(SpecError, match=r"from_generator\(\)"):
        fb.from_batches([(np.zeros(3), 1), (np.zeros(3), 0)])


def test_a_batch_that_numpy_cannot_convert_is_refused_with_its_type():
    with pytest.raises(SpecError, match=r"NumPy cannot convert a list in a batch .* rows of one length"):
        fb.from_batches([[[1], [2, 3]]])


def test_ready_made_batches_can_be_resumed_and_sharded():
    loader = [np.full(2, i) for i in range(10)]
    with fb.from_batches(loader).feed("numpy") as feed, fb.from_batches(loader).feed("numpy") as other:
        iterator = iter(feed)
        for _ in range(4):
            next(iterator)
        other.load_state_dict(feed.state_dict())
        assert batches_of(other) == [[i, i] for i in range(4, 10)]
    assert batches_of(fb.from_batches(loader).shard(1, 3).feed("numpy")) == [[i, i] for i in (1, 4, 7)]


def test_batches_with_different_specs_are_refused():
    with pytest.raises(SpecError, match=r"batch 1 has rows of float64\[3\] in 'array'"):
        batches_of(fb.from_batches([np.zeros((2, 2)), np.zeros((2, 3))]).feed("numpy"))


def test_batches_with_different_fields_are_refused():
    loader = [{"x": np.zeros(2)}, {"y": np.zeros(2)}]
    with pytest.raises(SpecError, match=r"batch 1 .* expected .*'x'.*, got .*'y'.*\. Give all batches the same fields"):
        list(fb.from_batches(loader).feed("numpy"))


def test_batching_ready_made_batches_again_is_refused():
    with pytest.raises(PipelineError, match="ready-made"):
        fb.from_batches(batches()).batch(3)


@pytest.mark.parametrize("shard", [0, 1])
def test_an_epoch_is_exhausted_at_the_last_batch_of_a_shard(shard):
    loader = [np.arange(3)] * 5
    with fb.from_batches(loader).shard(shard, 2).feed("numpy") as feed:
        epoch = iter(feed)
        is_exhausted = [epoch.spent for _ in islice(epoch, len(feed))]
    assert is_exhausted == [False] * (len(is_exhausted) - 1) + [True]
