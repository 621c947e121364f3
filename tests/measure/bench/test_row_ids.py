"""Rows that carry their number, and what is noticed by it."""

import numpy as np
import pytest

from forebay.measure.bench.data import array, source_array, write_file
from forebay.measure.bench.model import Work
from forebay.measure.bench.stamps import WrongRowsError, check_rows, first_elements_total, stamped

IMAGES = stamped(600, (5, 5, 3), "uint8")
FLOATS = stamped(600, (9,), "float32")


def test_rows_are_numbered_and_otherwise_random():
    assert IMAGES[300].reshape(-1)[:4].view("<u4") == 300
    assert FLOATS[:, 0].tolist() == list(range(600))
    assert 100 < IMAGES[:, 1:].mean() < 155
    assert 0.4 < FLOATS[:, 1:].mean() < 0.6


def test_data_larger_than_the_random_block_repeats_it():
    rows = stamped(3000, (16384,), "uint8")
    assert np.array_equal(rows[2048, 4:], rows[0, 4:])
    assert rows[2999, :4].view("<u4") == 2999


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_rows_of_the_source_in_any_order_are_right(source):
    check_rows(source[np.random.default_rng(0).permutation(600)[:100]], source)


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_a_row_that_comes_twice_is_noticed(source):
    with pytest.raises(WrongRowsError, match="only 2 different ones"):
        check_rows(source[[5, 7, 5]], source)


@pytest.mark.parametrize("source", [IMAGES, FLOATS], ids=["bytes", "floats"])
def test_a_single_wrong_byte_is_noticed(source):
    batch = source[:50].copy()
    batch.reshape(-1)[-1] += 1
    with pytest.raises(WrongRowsError, match="differs from the rows"):
        check_rows(batch, source)


def test_a_number_beyond_the_source_is_noticed():
    with pytest.raises(WrongRowsError, match="differs from the rows"):
        check_rows(FLOATS[500:], FLOATS[:550])


def test_an_epoch_comes_to_the_sum_of_the_first_elements():
    assert first_elements_total(FLOATS) == 600 * 599 // 2
    assert first_elements_total(IMAGES) == sum(row % 256 for row in range(600))


def test_floats_are_only_numbered_as_far_as_they_are_exact():
    with pytest.raises(ValueError, match="is not exact"):
        stamped(2**24 + 1, (1,), "float32")


def test_a_case_gets_stamped_rows_in_memory_and_in_files(tmp_path):
    work = Work(64, (3, 3, 3), 16, dtype="uint8", options={"stamped": True})
    path = write_file(work, "npy", tmp_path)
    mapped = source_array(Work(64, (3, 3, 3), 16, dtype="uint8", path=str(path)))
    assert np.array_equal(mapped, array(work))
    assert first_elements_total(mapped) == sum(range(64))
