"""Streams whose kernels never overlap, which a timeline treats as one stream."""

import numpy as np
import pytest

from forebay.doctor.model.device_records import RECORD, RecordKind
from forebay.doctor.predict.dependencies import merge_serial_streams


def operations(*rows):
    """Return operations of (kind, stream, start, end)."""
    made = np.zeros(len(rows), RECORD)
    for name, column in zip(("kind", "stream", "start", "end"), zip(*rows, strict=True), strict=bool(rows)):
        made[name] = column
    return made


def kernel(stream, start, end):
    return RecordKind.CONCURRENT_KERNEL, stream, start, end


def copy(stream, start, end):
    return RecordKind.MEMCPY, stream, start, end


def test_streams_whose_kernels_never_overlap_become_one():
    merged = merge_serial_streams(operations(kernel(7, 0, 10), kernel(9, 10, 30), kernel(7, 30, 40), copy(7, 40, 41)))
    assert merged["stream"].tolist() == [9, 9, 9, 9]


def test_streams_whose_kernels_overlap_stay_apart():
    merged = merge_serial_streams(operations(kernel(7, 0, 10), kernel(9, 2, 12), kernel(7, 12, 20)))
    assert merged["stream"].tolist() == [7, 9, 7]


def test_a_stream_of_copies_stays_apart():
    merged = merge_serial_streams(operations(kernel(7, 0, 10), copy(9, 0, 20), kernel(9, 20, 21), kernel(8, 21, 25)))
    assert merged["stream"].tolist() == [7, 9, 9, 7]


@pytest.mark.parametrize("rows", [(), (copy(3, 0, 5),), (kernel(3, 5, 5),)])
def test_without_kernels_nothing_changes(rows):
    assert merge_serial_streams(operations(*rows))["stream"].tolist() == [row[1] for row in rows]
