"""The pipeline methods that choose rows: their rows, and what they refuse."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.received import rows_of

import forebay as fb
from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.spec import ArraySpec
from forebay.errors import PipelineError, SpecError, StateError
from forebay.order.choices import Span
from forebay.order.sampling import MAX_WEIGHTS
from forebay.pipeline import stored_columns
from forebay.sources.arrays import ArraySource
from forebay.testing.strategies import seeds

TEN = fb.from_arrays(np.arange(10))
DATA = {"x": np.arange(12) * 10, "label": np.array([0, 1, 2] * 4), "image": np.zeros((12, 2, 2))}
STREAM = fb.from_generator(lambda: iter(range(10)))
BATCHES = fb.from_batches([np.arange(4)])


def rows(pipeline, field=None, epoch=0):
    with pipeline.batch(3).feed("numpy") as feed:
        feed.set_epoch(epoch)
        return rows_of(feed if field is None else [batch[field] for batch in feed])


# Methods that need rows which can be indexed

CALLS = {
    "select": lambda pipeline: pipeline.select([0]),
    "split": lambda pipeline: pipeline.split(0.5, 0.5),
    "sample": lambda pipeline: pipeline.sample(weights=np.ones(10)),
    "filter": lambda pipeline: pipeline.filter(lambda rows: rows < 5),
    "skip": lambda pipeline: pipeline.skip(1),
}


@pytest.mark.parametrize("verb", CALLS)
def test_rows_cannot_be_chosen_after_batch(verb):
    with pytest.raises(PipelineError, match=rf"{verb}\(\) works on rows: call it before batch\(\)"):
        CALLS[verb](TEN.batch(2))


@pytest.mark.parametrize("verb", CALLS)
def test_rows_of_ready_made_batches_cannot_be_chosen(verb):
    with pytest.raises(PipelineError, match=rf"{verb}\(\) works on rows, but from_batches"):
        CALLS[verb](BATCHES)


@pytest.mark.parametrize("verb", ["select", "split", "sample"])
def test_rows_of_a_stream_have_no_numbers(verb):
    with pytest.raises(PipelineError, match=rf"{verb}\(\) needs rows that can be indexed.*Use filter\(\)"):
        CALLS[verb](STREAM)


@pytest.mark.parametrize("verb", ["select", "split", "sample", "filter"])
@pytest.mark.parametrize(
    "pipeline",
    [TEN.shuffle(seed=0), TEN.shuffle(seed=0, block=2).take(10), TEN.sample(weights=np.ones(10)).repeat(1)],
)
def test_fixed_rows_cannot_be_chosen_after_random_ones(verb, pipeline):
    with pytest.raises(PipelineError, match=rf"Call {verb}\(\) before them"):
        CALLS[verb](pipeline)


@pytest.mark.parametrize("verb", ["select", "split", "sample", "filter"])
def test_rows_cannot_be_chosen_from_an_endless_epoch(verb):
    with pytest.raises(PipelineError, match=rf"never ends. Call {verb}\(\) before repeat\(\)"):
        CALLS[verb](TEN.repeat())


@pytest.mark.parametrize("verb", CALLS)
def test_another_choice_has_another_fingerprint(verb):
    chosen = CALLS[verb](TEN)
    chosen = chosen[0] if verb == "split" else chosen
    assert chosen.fingerprint != TEN.fingerprint
    state = TEN.batch(2).feed("numpy").state_dict()
    with pytest.raises(StateError, match="another pipeline"):
        chosen.batch(2).feed("numpy").load_state_dict(state)


# select


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ([7, 2, 2], [7, 2, 2]),
        (np.array([9, 0], np.uint8), [9, 0]),
        (np.arange(10) % 4 == 1, [1, 5, 9]),
        ([True] + [False] * 9, [0]),
        (range(2, 8, 3), [2, 5]),
        (range(3, 6), [3, 4, 5]),
        (slice(-3, None), [7, 8, 9]),
        (slice(None, None, -4), [9, 5, 1]),
        ([4], [4]),
    ],
)
def test_select_takes_masks_numbers_ranges_and_slices(choice, expected):
    assert rows(TEN.select(choice)) == expected


@pytest.mark.parametrize("choice", [range(2, 6), slice(2, 6), [2, 3, 4, 5], (np.arange(10) > 1) & (np.arange(10) < 6)])
def test_consecutive_rows_need_no_table(choice):
    assert TEN.select(choice).order == Span(TEN.order, 2, 4)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ([3, -1], "got row -1, but the pipeline has the rows 0 to 9"),
        ([3, 10], "got row 10,"),
        (range(8, 12), "got row 11,"),
        ([2**64 - 1], "got row 18446744073709551615"),
        ([True, False], "a mask of 2 booleans for 10 rows"),
        ([False] * 10, "a mask without any True for 10 rows"),
        ([], "got no position of 10 rows"),
        (range(0), "got no position of 10 rows"),
        (slice(5, 5), "got no position of 10 rows"),
        ([1.0, 2.0], r"got float64\[2\]"),
        ([[1, 2]], r"got int64\[1, 2\]"),
        (3, r"got int64\[\]"),
        ("abc", "one boolean for each row, or row numbers"),
        (None, r"got object\[\]"),
    ],
)
def test_select_refuses_what_is_no_choice_of_rows(choice, message):
    with pytest.raises(PipelineError, match=message):
        TEN.select(choice)


def test_a_selection_counts_the_rows_so_far():
    assert rows(TEN.skip(2).select([0, 1]).select([1])) == [3]
    assert rows(TEN.repeat(2).select([9, 10])) == [9, 0]
    assert rows(TEN.repeat().take(15).select([14])) == [4]


def test_a_selection_of_the_same_rows_is_the_same_pipeline():
    mask = np.arange(10) % 3 == 0
    assert TEN.select(mask) == TEN.select(mask.copy())
    assert TEN.select(mask).fingerprint != TEN.select(~mask).fingerprint


def test_shard_divides_the_selected_rows_wherever_it_is_called():
    assert rows(TEN.shard(1, 2).select([5, 6, 7])) == rows(TEN.select([5, 6, 7]).shard(1, 2)) == [6]


# skip


def test_skip_leaves_out_the_first_rows_of_every_epoch():
    assert rows(TEN.skip(8)) == [8, 9]
    assert rows(TEN.shuffle(seed=1).skip(4), epoch=2) == rows(TEN.shuffle(seed=1), epoch=2)[4:]
    assert rows(TEN.repeat().skip(8).take(4)) == [8, 9, 0, 1]
    assert TEN.skip(0) == TEN


@pytest.mark.parametrize(
    ("count", "message"), [(-1, "at least 0"), (10, "leaves none of 10 rows"), (1.5, "whole number"), (True, "whole")]
)
def test_skip_refuses_a_count_that_leaves_no_row(count, message):
    with pytest.raises(PipelineError, match=message):
        TEN.skip(count)


# split


@given(length=st.integers(3, 500), seed=st.none() | seeds, cuts=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_the_parts_of_a_split_have_every_row_once(length, seed, cuts):
    if length < 50:
        cuts = [5, 5]
    fractions = [cut / sum(cuts) for cut in cuts]
    parts = fb.from_arrays(np.arange(length)).split(*fractions, seed=seed)
    found = [rows(part) for part in parts]
    assert sorted(row for part in found for row in part) == list(range(length))
    assert all(abs(len(part) - fraction * length) < 1 for part, fraction in zip(found, fractions, strict=True))


def test_a_split_depends_only_on_rows_fractions_and_seed():
    first, second = (
        [rows(part) for part in fb.from_arrays(np.arange(100) + offset).split(0.7, 0.3, seed=3)] for offset in (0, 1000)
    )
    assert [[row + 1000 for row in part] for part in first] == second
    assert rows(TEN.split(0.5, 0.5, seed=0)[0]) != rows(TEN.split(0.5, 0.5, seed=1)[0])


def test_without_a_seed_the_parts_are_consecutive_rows():
    parts = TEN.split(0.5, 0.3, 0.2, seed=None)
    assert [rows(part) for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]


def test_the_largest_remainder_gets_the_row_that_is_left():
    assert [part.order.length for part in TEN.split(1 / 3, 1 / 3, 1 / 3)] == [4, 3, 3]
    assert [part.order.length for part in TEN.split(0.26, 0.74)] == [3, 7]


def test_a_shuffled_part_has_another_order_in_each_epoch_and_always_the_same_rows():
    part = fb.from_arrays(np.arange(50)).split(0.5, 0.5)[1].shuffle(seed=0)
    epochs = [rows(part, epoch=epoch) for epoch in range(3)]
    assert len(set(map(tuple, epochs))) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((), r"split\(\): pass the fraction"),
        ((0.5, 0.4), "the sum 0.9"),
        ((0.9, 0.2), "the sum 1.1"),
        ((1.0, 0.0), "a number above 0"),
        ((1.5, -0.5), "a number above 0"),
        ((0.5, "half"), "a number above 0"),
        ((float("nan"), 0.5), "a number above 0"),
        ((True,), "a number above 0"),
        ((0.99, 0.01), "of 10 rows leaves part 1 without a row"),
    ],
)
def test_split_refuses_fractions_that_are_no_division(fractions, message):
    with pytest.raises(PipelineError, match=message):
        TEN.split(*fractions)


def test_split_refuses_a_seed_that_is_no_number():
    with pytest.raises(PipelineError, match=r"split\(seed='x'\)"):
        TEN.split(0.5, 0.5, seed="x")


labels_of_rows = st.one_of(
    st.lists(st.integers(-5, 5), min_size=20, max_size=80).map(np.array),
    st.lists(st.integers(0, 2**64 - 1), min_size=20, max_size=80).map(lambda labels: np.array(labels, np.uint64)),
    st.lists(st.sampled_from(["a", "b", "cc", "d", "e", "f"]), min_size=20, max_size=80).map(np.array),
)


@given(labels=labels_of_rows, seed=st.none() | seeds)
def test_all_rows_with_one_label_are_in_one_part(labels, seed):
    largest = np.unique(labels, return_counts=True)[1].max()
    assume(largest < len(labels) / 2)
    parts = fb.from_arrays(np.arange(len(labels))).split(0.5, 0.5, seed=seed, by=labels)
    found = [rows(part) for part in parts]
    assert sorted(found[0] + found[1]) == list(range(len(labels)))
    assert not set(labels[found[0]].tolist()) & set(labels[found[1]].tolist())
    assert all(part == sorted(part) for part in found)
    assert abs(len(found[0]) - len(labels) / 2) <= largest / 2 + 0.5


def test_a_split_by_a_field_is_the_split_by_its_values():
    pipeline = fb.from_arrays(DATA)
    by_field, by_values = (pipeline.split(0.7, 0.3, by=by, seed=2) for by in ("label", DATA["label"]))
    assert by_field == by_values
    assert rows(by_field[0], "x") != rows(pipeline.split(0.7, 0.3, by="label", seed=3)[0], "x")


def test_a_split_by_groups_without_a_seed_takes_groups_in_their_order():
    parts = fb.from_arrays(np.arange(6)).split(0.5, 0.5, seed=None, by=["z", "z", "a", "m", "m", "m"])
    assert [rows(part) for part in parts] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("name", r"split\(\) found no field named 'name' in a row with x, label, image"),
        ("image", r"needs one value for each row, but 'image' has"),
        ([1, 2], r"labels of shape \[2\] for 12 rows"),
        (np.zeros((12, 1)), r"labels of shape \[12, 1\]"),
        ([1] * 12, r"has 1 groups, the largest of 12 rows, and part"),
        (np.array([1, "a", None] * 4, object), "cannot be compared"),
    ],
)
def test_split_refuses_labels_that_form_no_groups(by, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).split(0.9, 0.1, by=by)


# filter


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        (lambda batch: batch["label"] == 1, None),
        (lambda label: label == 1, "label"),
        (lambda batch: (batch["label"] == 1) & (batch["x"] >= 0), ("label", "x")),
        (lambda batch: [label == 1 for label in batch["label"]], ["label"]),
    ],
)
def test_filter_keeps_the_rows_for_which_the_function_is_true(function, fields):
    assert rows(fb.from_arrays(DATA).filter(function, fields=fields), "x") == [10, 40, 70, 100]


@given(length=st.integers(1, 100), chunk_nbytes=st.integers(1, 200), data=st.data())
def test_a_filter_sees_every_row_once_in_chunks_of_any_size(length, chunk_nbytes, data):
    skipped = data.draw(st.integers(0, length - 1))
    pipeline = data.draw(st.sampled_from([TEN, fb.from_arrays(np.arange(length)).skip(skipped).repeat(2)]))
    seen = []

    def keep_all(values):
        seen.extend(values.tolist())
        return values >= 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_columns, "CHUNK_NBYTES", chunk_nbytes)
        assert rows(pipeline.filter(keep_all)) == rows(pipeline) == seen


def test_a_filter_reads_only_its_fields():
    class Recorded(ArraySource):
        def gather_leaves(self, leaves, rows):
            read.append(tuple(leaves))
            return super().gather_leaves(leaves, rows)

    read = []
    fb.from_source(Recorded(DATA)).filter(lambda label: label > 0, fields="label")
    assert read == [(1,)]


def test_rows_of_different_shapes_can_be_filtered_by_a_field_of_one_shape():
    items = [{"text": np.zeros(length, np.int32), "label": np.int64(length)} for length in (3, 1, 4, 1, 5)]
    pipeline = fb.from_source(items)
    long_rows = pipeline.filter(lambda label: label > 2, fields="label")
    assert [batch["text"].shape for batch in long_rows.batch(2, pad=0).feed("numpy")] == [(2, 4), (1, 5)]
    with pytest.raises(SpecError, match="row 1 has int32"):
        pipeline.filter(lambda text: text.any(axis=1), fields="text")


@pytest.mark.parametrize(
    ("function", "fields", "message"),
    [
        ("x > 3", None, "filter\\(\\) needs a function, got 'x > 3'"),
        (lambda batch: batch["label"], None, r"returned int64\[12\] for 12 rows"),
        (lambda batch: True, None, r"returned bool\[\] for 12 rows"),
        (lambda batch: np.ones(3, bool), None, r"returned bool\[3\] for 12 rows"),
        (lambda batch: np.ones((12, 1), bool), None, r"returned bool\[12, 1\]"),
        (lambda batch: None, None, r"returned object\[\]"),
        (lambda batch: batch["label"] > 5, None, "kept none of 12 rows"),
        (lambda label: label > 1, "name", "found no field named 'name'"),
        (lambda label: label > 1, ("label", "name"), "found no field named 'name'"),
        (lambda label: label > 1, (), "names no field"),
    ],
)
def test_filter_refuses_what_is_no_condition(function, fields, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).filter(function, fields=fields)


def test_an_error_of_the_function_says_that_it_receives_many_rows():
    with pytest.raises(ValueError, match="truth value") as raised:
        fb.from_arrays(DATA).filter(lambda batch: batch["label"] in (1, 2))
    assert "with arrays of 12 rows, not with single rows" in raised.value.__notes__[0]


@pytest.mark.parametrize("pipeline", [fb.from_arrays(DATA), fb.from_generator(lambda: [{"x": 1, "label": 2}])])
def test_stored_rows_cannot_be_filtered_after_a_map(pipeline):
    with pytest.raises(PipelineError, match=r"filter\(\) reads the stored rows, but map.*Call filter\(\) first"):
        pipeline.map(lambda row: row).filter(lambda batch: batch["label"] > 1)


def test_groups_and_classes_are_stored_fields_too():
    mapped = fb.from_arrays(DATA).map(fb.cast({"label": "float32"}))
    with pytest.raises(PipelineError, match=r"split\(by=...\) reads the stored rows"):
        mapped.split(0.5, 0.5, by="label")
    with pytest.raises(PipelineError, match=r"sample\(balance=...\) reads the stored rows"):
        mapped.sample(balance="label")
    assert len(mapped.split(0.5, 0.5, by=DATA["label"])) == 2


def test_two_fields_with_one_name_cannot_be_told_apart():
    twins = fb.from_arrays({"a": {"b": np.arange(3)}, "a.b": np.arange(3)})
    with pytest.raises(PipelineError, match=r"found several fields named 'a\.b'"):
        twins.filter(lambda field: field > 1, fields="a.b")


# sample


def test_balance_gives_every_class_the_same_share():
    labels = np.array([0] * 900 + [1] * 90 + [2] * 10)
    pipeline = fb.from_arrays(labels).sample(balance=labels, rows=30_000)
    shares = np.bincount(rows(pipeline), minlength=3) / 30_000
    assert np.abs(shares - 1 / 3).max() < 0.02


def test_balance_by_a_field_is_balance_by_its_values():
    pipeline = fb.from_arrays(DATA).skip(2)
    by_field, by_values = pipeline.sample(balance="label"), pipeline.sample(balance=DATA["label"][2:])
    assert by_field == by_values
    assert rows(by_field, "x") == rows(by_values, "x")


def test_an_epoch_has_as_many_rows_as_before_unless_rows_is_given():
    assert len(rows(TEN.sample(weights=range(10)))) == 10
    assert len(rows(TEN.sample(weights=range(10), rows=25))) == 25
    assert sorted(rows(TEN.sample(weights=np.ones(10), replacement=False))) == list(range(10))


def test_each_pass_of_repeat_draws_other_rows():
    found = rows(TEN.sample(weights=np.ones(10)).repeat(3))
    assert len({tuple(found[start:stop]) for start, stop in pairwise([0, 10, 20, 30])}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither of weights= and balance="),
        ({"weights": np.ones(12), "balance": "label"}, "both of weights= and balance="),
        ({"weights": np.ones(11)}, r"weights of shape \[11\] for 12 rows"),
        ({"weights": np.ones((12, 1))}, r"weights of shape \[12, 1\]"),
        ({"weights": 1.0}, r"weights of shape \[\]"),
        ({"weights": ["a"] * 12}, "got no numbers"),
        ({"weights": [1] * 11 + [-0.5]}, "got -0.5 for row 11"),
        ({"weights": [1, float("nan")] * 6}, "got nan for row 1"),
        ({"weights": [float("inf")] * 12}, "got inf for row 0"),
        ({"weights": np.zeros(12)}, "only zeros for 12 rows"),
        ({"weights": [1, 0] * 6, "replacement": False}, "only 6 rows have a weight above 0"),
        ({"weights": np.ones(12), "rows": 13, "replacement": False}, "only 12 rows"),
        ({"weights": np.ones(12), "rows": 0}, r"sample\(rows=0\): pass a whole number of at least 1"),
        ({"weights": np.ones(12), "seed": 0.5}, r"sample\(seed=0.5\)"),
        ({"balance": "name"}, r"sample\(\) found no field named 'name'"),
        ({"balance": "image"}, "one value for each row"),
        ({"balance": [1, 2]}, r"labels of shape \[2\]"),
    ],
)
def test_sample_refuses_weights_that_are_no_distribution(options, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(DATA).sample(**options)


def test_sample_refuses_more_rows_than_its_table_supports():
    many = fb.from_arrays(np.arange(2)).repeat(MAX_WEIGHTS)
    with pytest.raises(PipelineError, match=f"supports {MAX_WEIGHTS} rows"):
        many.sample(weights=np.broadcast_to(1.0, 2 * MAX_WEIGHTS))


# Shuffles of chosen rows


class Chunked(ArraySource):
    shuffle_blocks = ShuffleBlocks(100, 4)


CHUNKED = fb.from_source(Chunked(np.arange(10_000)))


@pytest.mark.parametrize(
    ("pipeline", "block_rows"),
    [
        (CHUNKED, 100),
        (CHUNKED.take(500), 100),
        (CHUNKED.skip(5000), 100),
        (CHUNKED.split(0.9, 0.1, seed=None)[1], 100),
        (CHUNKED.select(np.arange(10_000) % 4 == 0), 25),
        (CHUNKED.filter(lambda rows: rows % 1000 == 0), 1),
        (CHUNKED.split(0.5, 0.5, by=np.arange(10_000) // 100)[0], 50),
    ],
)
def test_a_shuffle_of_chunked_rows_uses_blocks_that_span_as_many_chunks(pipeline, block_rows):
    order = pipeline.shuffle(seed=0).order
    assert order.max_open_blocks == Chunked.shuffle_blocks.max_open_blocks
    assert abs(order.block_rows - block_rows) <= 2


@pytest.mark.parametrize("pipeline", [CHUNKED.split(0.5, 0.5)[0], CHUNKED.select([5, 3, 9]), CHUNKED.repeat(2)])
def test_a_shuffle_of_scattered_rows_is_exact(pipeline):
    assert pipeline.shuffle(seed=0).order.describe()[0] == "shuffled"


# explain


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (TEN.skip(3), ["the order of the source", "from row 3 on"]),
        (TEN.select([1, 4, 6]), ["the order of the source", "3 of 10 rows were selected"]),
        (TEN.select([4, 1]), ["the order of the selected row numbers", "2 of 10 rows were selected"]),
        (TEN.select([4, 1]).shuffle(seed=0), ["an exact shuffle", "2 of 10 rows were selected"]),
        (TEN.split(0.5, 0.5)[0], ["the same in every epoch", "5 of 10 rows, split at random"]),
        (TEN.split(0.5, 0.5, seed=None)[1], ["the order of the source", "5 rows from row 5 on"]),
        (TEN.split(0.5, 0.5)[0].shuffle(seed=0).skip(1), ["an exact shuffle", "from row 1 on", "split at random"]),
        (TEN.sample(weights=np.ones(10), rows=4), ["4 of 10 rows are drawn by weight", "with replacement"]),
        (TEN.sample(weights=np.ones(10), replacement=False), ["sorted once per epoch"]),
        (TEN.sample(weights=np.ones(10)).shuffle(seed=0), ["an exact shuffle", "drawn by weight"]),
        (STREAM.skip(3), ["a stream cannot be indexed", "the first 3 rows are read and left out"]),
        (STREAM.filter(np.isfinite), ["filter(isfinite) runs while the stream is read"]),
        (STREAM.shuffle(seed=0, window=80).filter(np.isfinite), ["a window of 10", "filter(isfinite)"]),
        (CHUNKED.split(0.5, 0.5)[0], ["scattered over all chunks"]),
    ],
)
def test_the_choice_of_rows_is_explained(pipeline, expected):
    with pipeline.batch(2).feed("numpy") as feed:
        assert all(text in feed.plan.decisions[0].why for text in expected)


def test_the_window_of_a_stream_counts_as_memory_wherever_it_is():
    window = STREAM.shuffle(seed=0, window=800)
    plans = [pipeline.batch(2).feed("numpy").plan for pipeline in (window, window.skip(2), window.take(5).repeat(2))]
    assert [plan.input.shuffle_window_nbytes for plan in plans] == [800, 800, 800]


def test_fields_of_variable_length_cannot_be_read_as_columns():
    source = ArraySource(np.zeros((4, 2), np.int64))
    source.specs = (ArraySpec((None,), "int64"),)
    with pytest.raises(PipelineError, match="'array' differs in length between rows"):
        fb.from_source(source).filter(lambda rows: rows.any(axis=1))
