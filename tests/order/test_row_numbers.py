"""The C functions and NumPy compute the same row numbers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.order import permutation, sampling
from forebay.order.permutation import Permutation
from forebay.order.row_numbers import load_draw_alias, load_permute
from forebay.order.sampling import AliasTable

LENGTHS = st.one_of(
    st.integers(Permutation.TABLE_LENGTH + 1, 1 << 20),
    st.integers(Permutation.TABLE_LENGTH + 1, (1 << 32) + 100),
    st.sampled_from([(1 << 14) - 1, 1 << 14, (1 << 14) + 1, (1 << 31) + 1, (1 << 32) - 1, 1 << 32]),
)


def compute_with_numpy(function, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutation, "load_permute", lambda: None)
        patch.setattr(sampling, "load_draw_alias", lambda: None)
        return function(*arguments)


def test_the_library_is_compiled():
    assert load_permute() is not None
    assert load_draw_alias() is not None


@given(LENGTHS, st.integers(0, 2**128 - 1), st.integers(0, 3000), st.integers(1, 3))
def test_c_and_numpy_apply_the_same_permutation(length, key, count, step):
    order = Permutation(length, key)
    positions = np.random.default_rng(count).integers(0, length, count * step)[::step]
    rows = order(positions)
    assert rows.dtype == np.int64
    assert rows.shape == positions.shape
    assert np.array_equal(rows, compute_with_numpy(order, positions))
    assert ((rows >= 0) & (rows < length)).all()


@given(st.integers(1, 3000), st.integers(0, 2**128 - 1), st.integers(0, 3000), st.integers(1, 3))
def test_c_and_numpy_draw_the_same_numbers_from_an_alias_table(weight_count, epoch_key, count, step):
    rng = np.random.default_rng(weight_count)
    table, positions = AliasTable(rng.random(weight_count)), rng.integers(0, 1 << 40, count * step)[::step]
    drawn = table.draw(epoch_key, positions)
    assert drawn.dtype == np.int64
    assert np.array_equal(drawn, compute_with_numpy(table.draw, epoch_key, positions))


@pytest.mark.parametrize("length", [8193, 16384, 16385, 100_000])
def test_every_row_occurs_once(length):
    rows = Permutation(length, 7)(np.arange(length))
    assert np.array_equal(np.sort(rows), np.arange(length))


def test_positions_may_be_integers_of_another_type():
    order, positions = Permutation(20_000, 3), np.arange(6, dtype=np.int32)
    assert np.array_equal(order(positions), compute_with_numpy(order, positions))


def test_threads_share_a_permutation():
    order, positions = Permutation(333_333, 3), np.arange(100_000)
    expected = order(positions)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(order, [positions] * 16))
    assert all(np.array_equal(rows, expected) for rows in results)
