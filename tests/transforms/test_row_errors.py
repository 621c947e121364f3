"""Skipped rows: the nearest good row replaces each, and the log counts and limits them."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.core.skipped_rows import ErrorLimit, SkippedRow, describe_error
from forebay.errors import TransformError
from forebay.transforms.batch_context import BatchContext, collect_skipped
from forebay.transforms.row_errors import (
    MIN_COUNTED_ROWS,
    SHOWN_ROWS,
    SkippedRowLog,
    map_error_notes,
    replace_failed_rows,
)


def skipped_row(row, transform=0, error=None):
    return SkippedRow.of(row, transform, error or ValueError("bad"))


def new_log(max_errors=0.01):
    return SkippedRowLog({0: ErrorLimit("map(f, rows)", max_errors), 2: ErrorLimit("map(g, rows)", 1.0)})


@given(is_good=st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_the_nearest_good_row_or_the_earlier_of_two_replaces_a_failed_row(is_good):
    rows = [index if good else None for index, good in enumerate(is_good)]
    found = replace_failed_rows(rows, "map(f)", ValueError())
    for index, row in enumerate(found):
        others = [other for other in rows if other is not None]
        assert row == min(others, key=lambda other: (abs(other - index), other))


def test_a_batch_without_a_good_row_is_refused_with_the_first_error():
    error = KeyError("label")
    with pytest.raises(TransformError, match=r"map\(f\) failed for all 2 rows.*Correct.*KeyError: 'label'") as caught:
        replace_failed_rows([None, None], "map(f)", error)
    assert caught.value.__cause__ is error


def test_skipped_rows_are_numbered_from_the_start_of_the_first_of_several_batches():
    contexts = [BatchContext(0, 0, 0, slice(0, 4), skipped=[skipped_row(1)]), BatchContext(0, 0, 4, slice(4, 8))]
    contexts.append(BatchContext(0, 0, 8, slice(8, 9), skipped=[skipped_row(0)]))
    assert [row.row for row in collect_skipped(contexts, 4)] == [1, 8]


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError


def test_errors_are_described_in_one_short_line():
    assert describe_error(ValueError()) == "ValueError:"
    assert describe_error(UnprintableError()) == "UnprintableError"
    assert len(describe_error(ValueError("x" * 10_000))) < 300


def test_the_log_has_the_total_count_and_the_first_skipped_rows_of_each_map():
    counted = new_log(max_errors=1)
    counted.add([skipped_row(row) for row in range(7)] + [skipped_row(3, transform=2, error=KeyError("k"))], 100)
    counted.add([], 50)
    counts = counted.counts()
    assert (counts["count"], counts["received_rows"]) == (8, 150)
    assert counts["first"][0] == {"map": "map(f, rows)", "row": 0, "error": "ValueError: bad"}
    assert counts["first"][-1] == {"map": "map(g, rows)", "row": 3, "error": "KeyError: 'k'"}
    assert len(counts["first"]) == SHOWN_ROWS + 1


@given(
    max_errors=st.sampled_from([0.0, 0.001, 0.01, 0.5, 1.0]),
    groups=st.lists(st.tuples(st.integers(0, 20), st.integers(20, 900)), max_size=8),
)
def test_more_skipped_rows_than_the_error_limit_raise_an_error(max_errors, groups):
    counted, count, received = new_log(max_errors), 0, 0
    for failed, rows in groups:
        count, received = count + failed, received + rows
        if failed and count > max_errors * max(received, MIN_COUNTED_ROWS):
            with pytest.raises(TransformError, match=rf"failed for {count} of {received} rows.*row 0: ValueError: bad"):
                counted.add([skipped_row(row) for row in range(failed)], rows)
            return
        counted.add([skipped_row(row) for row in range(failed)], rows)


def test_each_kind_of_error_is_logged_once(caplog):
    counted = new_log(max_errors=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            counted.add([skipped_row(1), skipped_row(2, error=KeyError("k")), skipped_row(3, transform=2)], 10)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "map(f, rows) skipped row 1: ValueError: bad",
        "map(f, rows) skipped row 2: KeyError: 'k'",
        "map(g, rows) skipped row 3: ValueError: bad",
    ]


def call_tensor(row):
    return {"x": row["x"].cuda()}


def to_tensor(row):
    """Raise the error of torchvision's `ToTensor`."""
    raise TypeError(f"pic should be PIL Image or ndarray. Got {type(row)}")


def float_column(batch):
    return {"x": batch["x"].float()}


@pytest.mark.parametrize(
    ("function", "note"),
    [
        (call_tensor, "A map receives NumPy arrays, so .cuda does not work."),
        (float_column, "A map receives NumPy arrays, so .float does not work."),
        (to_tensor, "A map receives the whole row, here a dict of its fields."),
    ],
)
def test_the_error_of_a_map_says_what_a_map_receives(function, note):
    with pytest.raises((AttributeError, TypeError)) as caught:
        fb.from_arrays({"x": np.zeros((4, 2), "float32")}).map(function).batch(2).feed("numpy")
    assert [each for each in caught.value.__notes__ if each.startswith(note)]


@pytest.mark.parametrize(
    "error", [AttributeError("'Row' object has no attribute 'to'"), TypeError("'NoneType'"), ValueError()]
)
def test_other_errors_get_no_note(error):
    assert [*map_error_notes(error)] == []
