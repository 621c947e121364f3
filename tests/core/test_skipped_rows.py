"""Unreadable rows of a group: good rows of their batches replace them."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.skipped_rows import (
    SOURCE,
    RowRepair,
    SkippedRow,
    UnreadableRowsError,
    gather_readable,
    raise_unreadable,
)
from forebay.errors import SourceError


def unreadable(row, name="a.jpg"):
    return SkippedRow.of(row, SOURCE, SourceError(f"{name} cannot be decoded"), name)


def nearest(row, good):
    return min(good, key=lambda other: (abs(other - row), other))


@given(failed=st.sets(st.integers(0, 23)), batch_rows=st.integers(1, 9))
def test_the_nearest_good_row_replaces_an_unreadable_row_up_to_a_batch_without_good_rows(failed, batch_rows):
    batches = [range(start, min(start + batch_rows, 24)) for start in range(0, 24, batch_rows)]
    without_good_row = [number for number, batch in enumerate(batches) if failed.issuperset(batch)]
    repair = RowRepair.of([unreadable(row) for row in failed], 24, batch_rows)
    assert (repair.error is not None) == bool(without_good_row)
    assert repair.batches == next(iter(without_good_row), 0)
    repaired = batches[: repair.batches] if without_good_row else batches
    assert repair.replacements == {
        row: nearest(row, set(batch) - failed) for batch in repaired for row in batch if row in failed
    }
    assert [row.row for row in repair.skipped] == sorted(repair.replacements)


def test_all_leaves_and_the_row_numbers_are_replaced():
    repair = RowRepair.of([unreadable(0), unreadable(5)], 6, 3)
    leaves = [np.arange(6), np.arange(12).reshape(6, 2)]
    repair.apply(leaves)
    assert leaves[0].tolist() == [1, 1, 2, 3, 4, 4]
    assert leaves[1][:, 0].tolist() == [2, 2, 4, 6, 8, 8]
    assert repair.apply_to_numbers(slice(10, 16)).tolist() == [11, 11, 12, 13, 14, 14]
    assert RowRepair().apply_to_numbers(slice(10, 16)) == slice(10, 16)


def test_the_error_of_a_batch_names_its_first_unreadable_row():
    error = RowRepair.of([unreadable(3, "b.jpg"), unreadable(2)], 6, 2).error
    assert "no readable row among the 2 rows of a batch" in str(error)
    assert "The first one is a.jpg: SourceError: cannot be decoded" in str(error)


def test_unreadable_rows_are_raised_in_order_and_once_and_can_be_pickled():
    with pytest.raises(UnreadableRowsError, match=r"a\.jpg: SourceError: cannot be decoded.*select\(\)") as caught:
        raise_unreadable([unreadable(4), unreadable(1), unreadable(4)])
    assert [row.row for row in pickle.loads(pickle.dumps(caught.value)).rows] == [1, 4]
    raise_unreadable([])


class HalfSource:
    """A source whose odd rows cannot be read."""

    def gather(self, rows, out):
        out[0][...] = np.arange(rows.start, rows.stop)
        raise_unreadable(unreadable(position) for position in range(1 - rows.start % 2, rows.stop - rows.start, 2))


def test_gather_readable_returns_the_rows_that_could_not_be_read():
    out = np.zeros(3, int)
    assert [row.row for row in gather_readable(HalfSource(), slice(4, 7), [out])] == [1]
    assert out[[0, 2]].tolist() == [4, 6]
