"""The parts of rows: which part of a source a row belongs to."""

import numpy as np
import pytest

from forebay.core.rows import find_parts


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20])
def test_parts_of_rows_and_of_one_row_are_found(count):
    boundaries = np.arange(count) * 10
    rows = np.array([0, 9, 10, 55, 205])
    expected = np.searchsorted(boundaries, rows, side="right") - 1
    assert find_parts(rows, boundaries).tolist() == expected.tolist()
    assert [int(find_parts(row, boundaries)) for row in rows] == expected.tolist()
