"""Row numbers in chunks: the same as asked for one by one, and computed before they are needed."""

import numpy as np
import pytest

import forebay as fb
from forebay.cursor import Cursor
from forebay.order import Permutation
from forebay.row_numbers import RowNumbers

ROWS, BATCH_ROWS = Permutation.TABLE_LENGTH + 1000, 100


def walked(pipeline, *, epochs, chunk_rows=2048, prepare=True):
    """The numbers of all groups, and those that had to be computed while somebody waited for them."""
    numbers = RowNumbers(pipeline, group_rows=300, chunk_rows=chunk_rows)
    waited, found, computing = [], [], numbers._compute

    def compute(*key):
        if waiting:
            waited.append(key)
        return computing(*key)

    numbers._compute = compute
    for epoch in range(epochs):
        for group in pipeline.schedule.groups(Cursor(epoch=epoch), 3):
            waiting = True
            found.append(np.arange(ROWS)[numbers.of(group)])
            waiting = False
            if prepare:
                numbers.prepare(group)
    return np.concatenate(found), waited


@pytest.fixture
def rows():
    return fb.from_arrays({"x": np.zeros((ROWS, 1), np.uint8)}).shuffle(seed=3)


@pytest.mark.parametrize(
    "then",
    [
        lambda rows: rows.batch(BATCH_ROWS),
        lambda rows: rows.batch(BATCH_ROWS).repeat(2),
        lambda rows: rows.batch(BATCH_ROWS).repeat().take(2 * ROWS // BATCH_ROWS),
        lambda rows: rows.batch(BATCH_ROWS).take(50),
    ],
    ids=["once", "twice", "for ever, cut", "cut in mid-pass"],
)
def test_only_the_very_first_chunk_is_waited_for(rows, then):
    pipeline = then(rows)
    found, waited = walked(pipeline, epochs=3)
    assert waited == [(0, 0, 0)]
    assert np.array_equal(found, walked(pipeline, epochs=3, prepare=False)[0])


def test_rows_as_they_lie_need_no_numbers():
    pipeline = fb.from_arrays({"x": np.zeros((ROWS, 1), np.uint8)}).batch(BATCH_ROWS)
    found, waited = walked(pipeline, epochs=2)
    assert waited == []
    assert np.array_equal(found, np.tile(np.arange(ROWS), 2))
