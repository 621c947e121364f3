"""The pipeline methods that choose rows: their rows, and what they refuse."""

import numpy as np
import pytest
from tests.pipeline.row_pipelines import BATCHES, STREAM, TEN, rows

import forebay as fb
from forebay.core.chunk_policy import ShuffleBlocks
from forebay.core.spec import ArraySpec
from forebay.errors import PipelineError, StateError
from forebay.order.choices import Span
from forebay.sources.arrays import ArraySource

# Refused calls, and fingerprints

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
def test_rows_cannot_be_chosen_from_an_order_that_changes_in_each_epoch(verb, pipeline):
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
        (np.arange(10, dtype="uint8") % 2, r"a mask of dtype uint8\. Pass a mask as bool: mask.astype\(bool\)"),
        ([0] * 9 + [1], r"a mask of dtype int64.*If these are row numbers, call select\(\[0, 1\]\)"),
        (slice(0.5, 3), r"select\(slice\(0.5, 3, None\)\): slice indices must be integers.*Pass integers"),
        (slice(0, 3, 0), "slice step cannot be zero"),
        (np.ma.array([1, 2], mask=[0, 1]), r"select\(\) got a masked array, and its mask would be lost"),
    ],
)
def test_select_refuses_what_is_no_choice_of_rows(choice, message):
    with pytest.raises(PipelineError, match=message):
        TEN.select(choice)


def test_zeros_and_ones_are_row_numbers_unless_there_is_one_for_each_of_many_rows():
    assert rows(TEN.select([0, 1, 1])) == [0, 1, 1]
    assert rows(TEN.take(2).select([1, 0])) == [1, 0]
    assert rows(TEN.select([0, 1]).select([1, 0] * 5)) == [1, 0] * 5


def test_row_numbers_of_a_selection_are_positions_in_the_pipeline_before_it():
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
def test_skip_refuses_an_invalid_count(count, message):
    with pytest.raises(PipelineError, match=message):
        TEN.skip(count)


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
def test_blocks_of_a_shuffle_span_as_many_chunks_as_without_a_selection(pipeline, block_rows):
    order = pipeline.shuffle(seed=0).order
    assert order.max_open_blocks == Chunked.shuffle_blocks.max_open_blocks
    assert abs(order.block_rows - block_rows) <= 2


@pytest.mark.parametrize("pipeline", [CHUNKED.split(0.5, 0.5)[0], CHUNKED.select([5, 3, 9]), CHUNKED.repeat(2)])
def test_a_shuffle_of_rows_that_do_not_ascend_is_exact(pipeline):
    assert pipeline.shuffle(seed=0).order.describe()[0] == "shuffled"


@pytest.mark.parametrize(
    "pipeline", [TEN, TEN.select([4, 1]), fb.interleave(CHUNKED, CHUNKED), CHUNKED.select([5, 3, 9]), CHUNKED.repeat(2)]
)
def test_only_an_explicitly_exact_shuffle_refuses_a_number_of_open_blocks(pipeline):
    with pytest.raises(PipelineError, match=r"shuffle\(mix=3\) .* or write shuffle\(block=4096, mix=3\)"):
        pipeline.shuffle(block=None, mix=3)
    assert pipeline.shuffle(mix=3).order.describe()[0] == "shuffled"
    assert pipeline.shuffle(block=2, mix=3).order.max_open_blocks == 3


def test_a_shuffle_of_chunked_rows_opens_as_many_blocks_as_the_user_says():
    assert CHUNKED.shuffle(mix=3).order.max_open_blocks == 3


@pytest.mark.parametrize("options", [{"mix": 3}, {"block": 2}, {"block": 2, "mix": 3}])
def test_a_shuffle_of_a_stream_refuses_blocks(options):
    with pytest.raises(PipelineError, match="leave out block= and mix="):
        STREAM.shuffle(window=80, **options)


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
        (TEN.sample(weights=np.ones(10), rows=4), ["4 rows are drawn by weight from 10 in each epoch"]),
        (TEN.sample(weights=np.ones(10), replacement=False), ["sorted once per epoch"]),
        (TEN.sample(weights=np.ones(10)).shuffle(seed=0), ["an exact shuffle", "drawn by weight"]),
        (TEN.shuffle(seed=0).take(4), ["an exact shuffle", "the first 4 rows"]),
        (TEN.repeat(3), ["the order of the source", "3 passes over the rows"]),
        (STREAM.skip(3), ["a stream cannot be indexed", "the first 3 rows are read and left out"]),
        (STREAM.filter(np.isfinite), ["filter(isfinite) runs while the stream is read"]),
        (STREAM.shuffle(seed=0, window=80).filter(np.isfinite), ["a window of 10 rows", "filter(isfinite)"]),
        (CHUNKED.split(0.5, 0.5)[0], ["scattered over all chunks"]),
    ],
)
def test_the_choice_of_rows_is_explained(pipeline, expected):
    with pipeline.batch(2).feed("numpy") as feed:
        assert all(text in feed.plan.decisions[0].why for text in expected)


@pytest.mark.parametrize("method", ["repeat", "take", "skip"])
def test_how_rows_are_drawn_is_explained_once(method):
    drawn = TEN.sample(weights=np.ones(10), rows=4)
    with getattr(drawn, method)(2).batch(2).feed("numpy") as feed:
        assert feed.plan.decisions[0].why.count("drawn by weight") == 1


def test_the_window_of_a_stream_counts_as_memory_wherever_it_is():
    window = STREAM.shuffle(seed=0, window=800)
    plans = [pipeline.batch(2).feed("numpy").plan for pipeline in (window, window.skip(2), window.take(5).repeat(2))]
    assert [plan.input.shuffle_window_nbytes for plan in plans] == [800, 800, 800]


def test_fields_of_variable_length_cannot_be_read_as_columns():
    source = ArraySource(np.zeros((4, 2), np.int64))
    source.specs = (ArraySpec((None,), "int64"),)
    with pytest.raises(PipelineError, match="'array' differs in length between rows"):
        fb.from_source(source).filter(lambda rows: rows.any(axis=1))
