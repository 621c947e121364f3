"""The memory budget of one file, and the sizes that a file may claim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import BudgetError, SourceError
from forebay.sources.files.chunk_budget import ChunkBudget, ChunkClaim
from forebay.sources.files.held_budget import HeldBudget, validate_claim

LENGTHS = st.integers(0, 2**40)


@given(shape=st.lists(LENGTHS, min_size=1, max_size=3), chunk=st.lists(LENGTHS, min_size=3, max_size=3))
def test_accepted_columns_need_no_more_memory_than_the_budget_allows(shape, chunk):
    budget = HeldBudget.of(2**20)
    claim = ChunkClaim("x", shape, np.dtype("f4"), chunk[: len(shape)], max(1, chunk[0]))
    try:
        boundaries = ChunkBudget(budget).boundaries(claim)
    except (BudgetError, SourceError):
        return
    row_nbytes = 4 * int(np.prod(shape[1:], dtype=object))
    assert boundaries.nbytes <= 2**20
    assert boundaries[-1] == shape[0]
    assert int(np.diff(boundaries).max(initial=0)) * row_nbytes <= budget.max_nbytes


def test_the_error_about_chunks_says_how_many_the_earlier_arrays_claim():
    budget = ChunkBudget(HeldBudget.of(2**20))
    budget.boundaries(ChunkClaim("x", (2**16,), np.dtype("u1"), (1,), 1))
    with pytest.raises(BudgetError, match=r"y claims 5 chunks, and the arrays before it claim 65536\. .*=4194624"):
        budget.boundaries(ChunkClaim("y", (5,), np.dtype("u1"), (1,), 1))


def test_the_error_about_one_read_names_its_size():
    claim = ChunkClaim("x", (2**27,), np.dtype("u1"), (2**20,), 2**26)
    with pytest.raises(BudgetError, match=r"one read of x decompresses 67108864 bytes, .*room for up to 4 reads"):
        ChunkBudget(HeldBudget.of(1)).boundaries(claim)


def test_a_budget_of_the_user_limits_one_file():
    with pytest.raises(BudgetError, match=r"x claims much\. This needs 200000000 bytes.*max_held_bytes=200000000"):
        HeldBudget.of(10**8).validate("x claims much", 2 * 10**8)


def test_a_small_budget_allows_64_mib_for_one_file():
    HeldBudget.of(1).validate("x", 2**26)
    with pytest.raises(BudgetError, match="more than the limit of 64"):
        HeldBudget.of(1).validate("x", 2**26 + 1)


@pytest.mark.parametrize("shape", [(-1,), (2**62,), (1,) * 65, (True,)], ids=str)
def test_a_shape_that_numpy_cannot_represent_is_refused(shape):
    with pytest.raises(SourceError, match="'x' is damaged: it claims to hold float32"):
        validate_claim("'x'", shape, np.dtype("f4"))


def test_a_value_above_64_mib_is_refused():
    with pytest.raises(SourceError, match="is damaged: it claims to hold"):
        validate_claim("'x'", (1,), np.dtype(f"S{2**26 + 1}"))
