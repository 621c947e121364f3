"""Ceilings are exact at measured sizes and interpolated between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.probes import HOST, SPEEDS

from forebay.core.ceilings import RowSpeed, RowSpeeds


def test_speeds_of_measured_sizes_are_exact():
    assert [SPEEDS.bytes_per_second(size) for size in (64, 400, 4096)] == pytest.approx([1e9, 4e9, 9e9])


def test_smaller_rows_take_the_time_of_the_smallest_measured_row():
    assert SPEEDS.bytes_per_second(16) == pytest.approx(0.25e9)


def test_larger_rows_are_as_fast_as_the_largest_measured_row():
    assert SPEEDS.bytes_per_second(10**9) == 9e9


@given(st.integers(64, 4096))
def test_a_speed_lies_between_the_neighbouring_speeds(row_nbytes):
    slower, faster = (1e9, 4e9) if row_nbytes <= 400 else (4e9, 9e9)
    assert slower * 0.999 <= SPEEDS.bytes_per_second(row_nbytes) <= faster * 1.001


def test_speeds_of_threads_are_interpolated_and_then_constant():
    assert HOST.copy_bytes_per_second(threads=3) == pytest.approx(16e9)
    assert HOST.copy_bytes_per_second(threads=64) == 20e9
    assert HOST.gather_bytes_per_second(4096) == 9e9
    assert HOST.gather_bytes_per_second(4096, threads=2) == pytest.approx(13e9)


@pytest.mark.parametrize("sizes", [(), (0, 64), (64, 64), (400, 64)])
def test_missing_zero_repeated_or_unsorted_row_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="ascending order"):
        RowSpeeds(tuple(RowSpeed(size, 1e9) for size in sizes))
