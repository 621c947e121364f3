"""Feeds of arrays: their batches, their order, their epochs and their length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.received import batches_of, rows_of
from tqdm import tqdm

import forebay as fb
from forebay.testing.strategies import trees


@given(data=st.data(), rows=st.integers(1, 200), batch=st.integers(1, 40), shuffled=st.booleans())
def test_batches_equal_plain_indexing(data, rows, batch, shuffled):
    tree = data.draw(trees(rows=rows))
    keyed = {"tree": tree, "row": np.arange(rows)}
    pipeline = fb.from_arrays(keyed)
    pipeline = pipeline.shuffle(seed=5) if shuffled else pipeline
    source = fb.from_arrays(keyed).source
    with pipeline.batch(batch).feed("numpy") as feed:
        seen = []
        for got in feed:
            leaves = source.structure.flatten_like(got)
            expected = [array[got["row"]] for array in source._arrays]
            assert all(np.array_equal(leaf, want) for leaf, want in zip(leaves, expected, strict=True))
            assert all(leaf.ctypes.data % 64 == 0 for leaf in leaves)
            seen += got["row"].tolist()
    assert sorted(seen) == list(range(rows))


def test_an_unshuffled_feed_keeps_the_order():
    assert rows_of(fb.from_arrays(np.arange(1000)).batch(7).feed("numpy")) == list(range(1000))


def test_each_iteration_is_the_next_epoch():
    pipeline = fb.from_arrays(np.arange(1000)).shuffle(seed=1).batch(10)
    with pipeline.feed("numpy") as feed:
        epochs = [batches_of(feed) for _ in range(3)]
    with pipeline.feed("numpy") as again:
        again.set_epoch(2)
        assert batches_of(again) == epochs[2]
    assert epochs[0] != epochs[1]


def test_an_iteration_after_a_break_is_the_next_epoch():
    pipeline = fb.from_arrays(np.arange(1000)).shuffle(seed=1).batch(10)
    with pipeline.feed("numpy") as feed:
        for _ in feed:
            break
        second = batches_of(feed)
    with pipeline.feed("numpy") as other:
        batches_of(other)
        assert batches_of(other) == second


@pytest.mark.parametrize("host_bytes", ["4MB", "64MB"])
@pytest.mark.parametrize("batch", [3, 64])
def test_budgets_and_grouping_never_change_the_order(batch, host_bytes):
    pipeline = fb.from_arrays(np.arange(1000)).shuffle(seed=9).batch(batch)
    expected = [
        row for start in range(0, 1000, batch) for row in pipeline.order.rows(0, np.arange(1000))[start : start + batch]
    ]
    assert rows_of(pipeline.feed("numpy", host_bytes=host_bytes)) == expected


def test_shards_are_strides_of_one_order():
    whole = rows_of(fb.from_arrays(np.arange(1000)).shuffle(seed=2).batch(8).feed("numpy"))
    for index in range(3):
        part = rows_of(fb.from_arrays(np.arange(1000)).shard(index, 3).shuffle(seed=2).batch(8).feed("numpy"))
        assert part == whole[index::3]


def test_length_counts_batches():
    assert len(fb.from_arrays(np.arange(1000)).batch(64).feed("numpy")) == 16
    assert len(fb.from_arrays(np.arange(1000)).batch(64, drop_remainder=True).feed("numpy")) == 15
    assert len(fb.from_arrays(np.arange(1000)).batch(64).repeat(2).take(20).feed("numpy")) == 20


def test_an_endless_feed_has_no_length():
    feed = fb.from_arrays(np.arange(1000)).repeat().batch(64).feed("numpy")
    with pytest.raises(TypeError, match="no length"):
        len(feed)
    assert sum(1 for _ in zip(range(50), feed, strict=False)) == 50


def test_batches_span_two_passes_if_repeat_comes_before_batch():
    batches = batches_of(fb.from_arrays(np.arange(5)).repeat(2).batch(4).feed("numpy"))
    assert batches == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]


def test_batches_end_with_a_pass_if_repeat_comes_after_batch():
    batches = batches_of(fb.from_arrays(np.arange(5)).batch(4).repeat(2).feed("numpy"))
    assert batches == [[0, 1, 2, 3], [4], [0, 1, 2, 3], [4]]


def test_take_counts_rows_before_batch_and_batches_after():
    assert rows_of(fb.from_arrays(np.arange(1000)).take(10).batch(4).feed("numpy")) == list(range(10))
    assert rows_of(fb.from_arrays(np.arange(1000)).batch(4).take(2).feed("numpy")) == list(range(8))


def test_tqdm_shows_the_length_of_a_feed():
    bar = tqdm(fb.from_arrays(np.arange(1000)).batch(10).feed("numpy"), disable=True)
    assert bar.total == 100
    assert sum(1 for _ in bar) == 100


def test_changes_of_an_array_between_epochs_appear_in_the_next_epoch():
    data = np.zeros(100)
    with fb.from_arrays(data).batch(10).feed("numpy") as feed:
        for epoch in range(3):
            data[:] = epoch
            assert {float(row) for batch in feed for row in batch} == {epoch}


def test_a_map_is_called_once_per_batch_and_once_to_infer_specs():
    calls = []
    with fb.from_arrays(np.arange(40)).batch(10).map(lambda batch: calls.append(1) or batch).feed("numpy") as feed:
        for _ in range(3):
            batches_of(feed)
    assert len(calls) == 1 + 3 * 4


def test_the_error_of_a_map_has_no_unrelated_context():
    feed = fb.from_arrays(np.arange(1000)).batch(10).map(lambda batch: 1 / 0 if batch[0] else batch).feed("numpy")
    with pytest.raises(ZeroDivisionError) as caught:
        batches_of(feed)
    assert caught.value.__context__ is None
