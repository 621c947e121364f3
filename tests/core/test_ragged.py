"""`Ragged` holds rows of different length as values and offsets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.core.ragged import map_values
from forebay.core.spec import Layout
from forebay.errors import SpecError

ROWS = st.lists(st.lists(st.integers(-5, 5), max_size=6), min_size=1, max_size=8)


@given(rows=ROWS)
def test_rows_come_back_in_order(rows):
    ragged = fb.Ragged.of_rows([np.array(row, np.int64) for row in rows])
    assert ragged.tolist() == rows
    assert [ragged[row].tolist() for row in range(-len(rows), len(rows))] == rows * 2
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    assert ragged.offsets[0] == 0


def test_an_empty_list_does_not_change_the_dtype():
    assert fb.Ragged.of_rows([[], [1, 2]]).dtype == np.int64


def test_a_row_number_out_of_range_is_an_error():
    with pytest.raises(IndexError, match="row 1 of 1 rows"):
        fb.Ragged.of_rows([[1]])[1]


@pytest.mark.parametrize("rows", [[np.zeros((2, 3)), np.zeros((2, 4))], [np.zeros(()), np.zeros(2)]])
def test_rows_that_differ_in_more_than_their_length_are_refused(rows):
    with pytest.raises(SpecError, match="ragged row"):
        fb.Ragged.of_rows(rows)


def test_an_empty_list_of_rows_is_refused():
    with pytest.raises(SpecError, match="no rows"):
        fb.Ragged.of_rows([])


def test_a_function_of_values_keeps_the_offsets():
    ragged = map_values(np.negative, fb.Ragged.of_rows([[1, 2], [3]]))
    assert ragged.tolist() == [[-1, -2], [-3]]


def test_offsets_that_do_not_fit_into_the_dtype_are_refused():
    with pytest.raises(SpecError, match="200 values"):
        fb.Ragged.of_rows([np.zeros(200)]).with_offsets_of(np.dtype(np.int8))


def test_the_layout_of_ragged_rows_has_a_row_count_for_each_array():
    layout = Layout.of_arrays([np.zeros(7, np.int8), np.zeros(3), np.zeros((2, 0))], batch_rows=2, alignment=64)
    assert layout.row_counts == (7, 3, 2)
    assert layout.parts(2) == [(0, 7), (64, 24)]
    assert [layout.view(bytearray(layout.nbytes), leaf).shape for leaf in range(3)] == [(7,), (3,), (2, 0)]


@given(rows=ROWS, width=st.sampled_from([(), (2,)]), factor=st.sampled_from([1, 40]), data=st.data())
def test_chosen_rows_are_taken_and_padded(rows, width, factor, data):
    flat = [np.array(row * factor, np.int64) for row in rows]
    arrays = [np.stack([row] * width[0], axis=1) for row in flat] if width else flat
    ragged = fb.Ragged.of_rows(arrays)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)))
    assert ragged.take_rows(chosen).tolist() == [arrays[row].tolist() for row in chosen]
    padded = ragged.take_padded(chosen, -9)
    expected = np.full((len(chosen), max(len(arrays[row]) for row in chosen), *width), -9)
    for target, row in zip(expected, chosen, strict=True):
        target[: len(arrays[row])] = arrays[row]
    assert padded.tolist() == expected.tolist()
