"""Rows of different length in one array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import ForebayError, SpecError


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=30), data=st.data())
def test_rows_equal_the_slices_between_the_offsets(lengths, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=9)), np.intp)
    values, offsets = np.arange(sum(lengths) + 3), np.cumsum([3, *lengths])
    source = fb.from_ragged({"x": values, "y": values * 0.5}, offsets).source
    assert source.row_lengths(1).tolist() == lengths
    for (x, y), row in zip(source.gather_rows(rows), rows, strict=True):
        assert x.tolist() == values[offsets[row] : offsets[row + 1]].tolist()
        assert (y == x * 0.5).all()


def test_rows_share_the_memory_of_the_values(tmp_path):
    np.arange(10, dtype="uint16").tofile(tmp_path / "tokens.bin")
    values = np.memmap(tmp_path / "tokens.bin", "uint16")
    (row,) = fb.from_ragged(values, [2, 7]).source.gather_rows(slice(0, 1))[0]
    assert np.shares_memory(row, values)


def test_rows_are_padded_by_batch():
    (batch,) = fb.from_ragged(np.arange(6), [0, 3, 4, 6]).batch(9, pad=-1).feed("numpy")
    assert batch.tolist() == [[0, 1, 2], [3, -1, -1], [4, 5, -1]]


def test_rows_without_padding_are_refused():
    with pytest.raises(ForebayError, match="pad"):
        fb.from_ragged(np.arange(6), [0, 3, 4, 6]).batch(2).feed("numpy")


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        (np.arange(4), [0], "one more than"),
        (np.arange(4), [0.0, 4.0], "float64"),
        (np.arange(4), [[0, 4]], "one more than"),
        (np.arange(4), [0, 5], "only 4 values"),
        (np.arange(4), [-1, 3], "negative"),
        (np.arange(4), [0, 3, 2], "row 1"),
        (np.float32(3), [0, 1], "plain array"),
        ({}, [0, 1], "empty dict"),
        (np.array(["a", None]), [0, 1], "Python objects"),
    ],
)
def test_wrong_values_and_offsets_are_refused(values, offsets, message):
    with pytest.raises(SpecError, match=message):
        fb.from_ragged(values, offsets)
