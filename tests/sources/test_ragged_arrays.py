"""Arrays with rows of different length as a source."""

import numpy as np
import pytest

import forebay as fb
from forebay.errors import PipelineError, SpecError
from forebay.sources.ragged_arrays import RaggedArraySource

TEXTS = fb.Ragged(np.arange(6), np.array([0, 3, 3, 6], np.int32))


def test_rows_are_views_of_the_values():
    source = RaggedArraySource({"text": TEXTS, "row": np.arange(3)})
    rows = source.gather_rows(np.array([2, 0, 1]))
    assert [[leaf.tolist() for leaf in row] for row in rows] == [[[3, 4, 5], 2], [[0, 1, 2], 0], [[], 1]]
    assert np.shares_memory(rows[0][0], TEXTS.values)
    assert [len(row[0]) for row in source.gather_rows(slice(1, 3))] == [0, 3]


def test_the_source_knows_the_lengths_of_its_rows():
    source = RaggedArraySource({"text": TEXTS, "row": np.arange(3)})
    assert source.row_lengths(0).tolist() == [3, 0, 3]
    assert source.row_lengths(1) is None


def test_combined_sources_know_the_lengths_of_their_parts():
    texts, numbers = fb.from_arrays(TEXTS), fb.from_arrays(np.arange(3))
    other = fb.from_arrays(fb.Ragged(np.arange(6), np.array([0, 3, 3, 6])))
    assert fb.concat(texts, other).source.row_lengths(0).tolist() == [3, 0, 3] * 2
    zipped = fb.zip_rows(numbers, texts).source
    assert zipped.row_lengths(1).tolist() == [3, 0, 3]
    assert zipped.row_lengths(0) is None
    items = [fb.from_source([np.zeros(3, int)]) for _ in range(2)]
    assert fb.concat(*items).source.row_lengths(0) is None


def test_a_filter_of_another_field_selects_ragged_rows():
    rows = fb.from_arrays({"text": TEXTS, "row": np.arange(3)}).filter(lambda row: row != 1, fields="row")
    assert next(rows.batch(3, ragged=True).feed("numpy"))["text"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_rows_need_padding_or_ragged_batches():
    with pytest.raises(PipelineError, match="rows may differ in length"):
        fb.from_arrays(TEXTS).batch(2).feed("numpy")
    with pytest.raises(SpecError, match="do not fit into one array"):
        RaggedArraySource(TEXTS).gather(slice(0, 1), [np.zeros((1, 3))])


def test_values_in_another_byte_order_are_converted():
    ragged = fb.Ragged(np.arange(3, dtype=">i4"), [0, 1, 3])
    assert next(fb.from_arrays(ragged).batch(2, ragged=True).feed("numpy")).tolist() == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (fb.Ragged(np.arange(3), np.array([0.0, 3.0])), "one more than there are rows"),
        (fb.Ragged(np.arange(3), np.zeros((0,), int)), "one more than there are rows"),
        (fb.Ragged(np.arange(3), np.array([0, 4])), "only 3 values"),
        (fb.Ragged(np.arange(3), np.array([0, 2, 1])), "must not be negative or decrease"),
        (fb.Ragged(np.arange(3), np.array([-1, 2])), "must not be negative or decrease"),
        ({"a": TEXTS, "b": np.arange(2)}, "the same number of rows"),
        (fb.Ragged(np.array([None]), np.array([0, 1])), "Python objects"),
    ],
)
def test_wrong_arrays_are_refused(tree, message):
    with pytest.raises(SpecError, match=message):
        fb.from_arrays(tree)
