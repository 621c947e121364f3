"""Rows that contain their row number, and the errors that the numbers reveal."""

import numpy as np
import pytest

from forebay.measure.bench.data import make_array, open_array, write_file
from forebay.measure.bench.model import Workload
from forebay.measure.bench.row_ids import WrongRowsError, check_rows, make_numbered_rows, sum_first_elements

IMAGES = make_numbered_rows(600, (5, 5, 3), "uint8")
FLOATS = make_numbered_rows(600, (9,), "float32")


def test_rows_are_numbered_and_otherwise_random():
    assert IMAGES[300].reshape(-1)[:4].view("<u4") == 300
    assert FLOATS[:, 0].tolist() == list(range(600))
    assert 100 < IMAGES[:, 1:].mean() < 155
    assert 0.4 < FLOATS[:, 1:].mean() < 0.6


def test_data_larger_than_the_random_block_repeats_the_block():
    rows = make_numbered_rows(3000, (16384,), "uint8")
    assert np.array_equal(rows[2048, 4:], rows[0, 4:])
    assert rows[2999, :4].view("<u4") == 2999


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_rows_of_the_source_pass_in_any_order(source):
    check_rows(source[np.random.default_rng(0).permutation(600)[:100]], source)


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_a_duplicate_row_raises(source):
    with pytest.raises(WrongRowsError, match="only 2 different rows"):
        check_rows(source[[5, 7, 5]], source)


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_a_single_wrong_byte_raises(source):
    batch = source[:50].copy()
    batch.reshape(-1)[-1] += 1
    with pytest.raises(WrongRowsError, match="differs from the source rows"):
        check_rows(batch, source)


def test_a_row_number_beyond_the_source_raises():
    with pytest.raises(WrongRowsError, match="differs from the source rows"):
        check_rows(FLOATS[500:], FLOATS[:550])


def test_the_first_elements_of_all_rows_are_summed():
    assert sum_first_elements(FLOATS) == 600 * 599 // 2
    assert sum_first_elements(IMAGES) == sum(row % 256 for row in range(600))


def test_more_rows_than_float32_can_number_are_refused():
    with pytest.raises(ValueError, match="is not exact"):
        make_numbered_rows(2**24 + 1, (1,), "float32")


def test_numbered_rows_are_the_same_in_memory_and_in_files(tmp_path):
    work = Workload(64, (3, 3, 3), 16, dtype="uint8", options={"numbered": True})
    path = write_file(work, "npy", tmp_path)
    mapped = open_array(Workload(64, (3, 3, 3), 16, dtype="uint8", path=str(path)))
    assert np.array_equal(mapped, make_array(work))
    assert sum_first_elements(mapped) == sum(range(64))
