"""Exact permutations that a key selects. Long permutations need no table."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from forebay.core.c_functions import address_of
from forebay.core.spec import Array
from forebay.order.row_numbers import load_permute

__all__ = [
    "Permutation",
    "PermutationParams",
    "Positions",
    "cached_permutation",
    "derive_key",
    "stable_argsort",
]

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# Largest array that `_argsort_packed` sorts. In larger arrays, the indices replace more bits. Then many random floats
# have equal upper bits.
_MAX_PACKED = 1 << 22
_MAX_TIE_SHARE = 64  # `_argsort_packed` gives up if more than 1/64 of the numbers have equal upper bits


@dataclass(frozen=True, slots=True)
class PermutationParams:
    """The constants of a permutation of range(length), with which a device computes it.

    First add `term` to the position. Then run one round for each factor: multiply by the factor, keep the bits of
    `mask`, and XOR the number with itself shifted right by `shift`. If the result is not below `length`, repeat all
    steps with the result.
    """

    length: int
    mask: int
    term: int
    factors: tuple[int, ...]
    shift: int


class Permutation:
    """The permutation of range(length) that a key selects. A call maps positions to row numbers.

    Up to `TABLE_LENGTH`, the permutation is a table: the indices that sort random numbers. A call of a longer
    permutation computes each row number: one addition, then rounds of multiply and shift. Each round is a bijection on
    the numbers below the next power of two. A number outside of the range goes through the rounds again until it is
    inside, so that all steps together are a bijection on the range.

    The constants are raw bits of NumPy's generator Philox, which NumPy guarantees never to change. So an order is the
    same on every machine and with every version of NumPy.
    """

    TABLE_LENGTH = 1 << 13  # up to this length, numbers have too few bits for the multiplication to mix them well
    _ROUNDS = 5  # more rounds mix better, but each takes time for every row
    _STEP_NUMBERS = 1 << 16  # numbers that go through the rounds together; they stay in the cache of a CPU core
    _FEW_NUMBERS = 16  # for at most this many numbers, Python integers take less time than arrays

    def __init__(self, length: int, key: int) -> None:
        self._length = length
        self._table: Positions | None = None
        generator = np.random.Philox(key=key)
        if length <= self.TABLE_LENGTH:
            self._table = stable_argsort(generator.random_raw(length))
            return
        bits = (length - 1).bit_length()
        integer_type: type[np.unsignedinteger[Any]] = np.uint32 if bits <= 32 else np.uint64
        constants = generator.random_raw(self._ROUNDS + 1).astype(integer_type)
        self._integer_type = integer_type
        # The constants are arrays without dimensions, because NumPy would convert plain numbers in every call.
        self._mask = np.array((1 << bits) - 1, integer_type)
        self._term = np.array(constants[0])
        # Make the factors odd: modulo a power of two, only the multiplication by an odd number is invertible.
        self._factors = [np.array(factor) for factor in constants[1:] | integer_type(1)]
        self._shift = np.array((bits + 1) // 2, integer_type)

    @cached_property
    def permutation_params(self) -> PermutationParams | None:
        """The constants of a computed permutation; None if the permutation is a table."""
        if self._table is not None:
            return None
        factors = tuple(map(int, self._factors))
        return PermutationParams(self._length, int(self._mask), int(self._term), factors, int(self._shift))

    @cached_property
    def _packed_params(self) -> Array:
        """The constants in the order of `Params` in number_rows.c."""
        params = self.permutation_params
        assert params is not None
        return np.array([params.length, params.mask, params.term, params.shift, *params.factors], np.uint32)

    def __call__(self, positions: Positions) -> Positions:
        if self._table is not None:
            return self._table[positions]
        permute = None if self._length >> 32 else load_permute()  # the C function computes with 32-bit numbers
        return self._permute_with_numpy(positions) if permute is None else self._permute_with(permute, positions)

    def _permute_with(self, permute: Any, positions: Positions) -> Positions:
        """Return the row numbers that the C function writes."""
        numbers = np.ascontiguousarray(positions, np.int64)
        rows = np.empty(numbers.shape, np.int64)
        permute(address_of(numbers), numbers.size, address_of(rows), address_of(self._packed_params))
        return rows

    def _permute_with_numpy(self, positions: Positions) -> Positions:
        numbers = positions.astype(self._integer_type)
        self._run_rounds(numbers)
        outside = np.flatnonzero(numbers >= self._length)
        repeated = numbers.take(outside)
        while outside.size > self._FEW_NUMBERS:
            self._run_rounds(repeated)
            numbers[outside] = repeated
            is_outside = np.flatnonzero(repeated >= self._length)  # faster than a mask as an index
            outside, repeated = outside.take(is_outside), repeated.take(is_outside)
        for index, number in zip(outside.tolist(), repeated.tolist(), strict=True):
            numbers[index] = self._run_rounds_until_inside(number)
        return numbers.astype(np.int64)

    def _run_rounds(self, numbers: Array) -> None:
        """Apply the addition and all rounds to `numbers` in place."""
        scratch = np.empty_like(numbers[: self._STEP_NUMBERS])
        for start in range(0, len(numbers), self._STEP_NUMBERS):
            step = numbers[start : start + self._STEP_NUMBERS]
            shifted = scratch[: len(step)]
            step += self._term
            for factor in self._factors:
                step *= factor
                step &= self._mask
                np.right_shift(step, self._shift, out=shifted)
                step ^= shifted

    def _run_rounds_until_inside(self, number: int) -> int:
        """Apply the addition and all rounds to a number until it is below the length."""
        params = self.permutation_params
        assert params is not None
        while number >= params.length:
            number += params.term
            for factor in params.factors:
                number = number * factor & params.mask
                number ^= number >> params.shift
        return number


def stable_argsort(numbers: Array) -> Positions:
    """Return the indices that sort the numbers; equal numbers keep their order.

    The numbers are uint64, or float64 without a sign bit: the order of such floats is the order of their bits.
    """
    if 0 < len(numbers) <= _MAX_PACKED:
        order = _argsort_packed(numbers.view(np.uint64))
        if order is not None:
            return order
    order = np.argsort(numbers)  # several times faster than a stable sort, and identical if all numbers differ
    sorted_numbers = numbers[order]
    if (sorted_numbers[1:] == sorted_numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
    return order.astype(np.int64, copy=False)


def _argsort_packed(numbers: Array) -> Positions | None:
    """Return the indices that sort the numbers; None if many have equal upper bits.

    The function replaces the lower bits of each number by its index and sorts the results, which takes a fifth of the
    time of `np.argsort`. Then it sorts the few numbers with equal upper bits by their original values.
    """
    index_bits = np.uint64((len(numbers) - 1).bit_length())
    index_mask = (np.uint64(1) << index_bits) - np.uint64(1)
    packed = numbers & ~index_mask
    packed |= np.arange(len(numbers), dtype=np.uint64)
    packed.sort()
    order: Positions = (packed & index_mask).view(np.int64)
    packed >>= index_bits
    ties = np.flatnonzero(packed[1:] == packed[:-1])  # indices of numbers with the upper bits of the next number
    if len(ties) > len(numbers) // _MAX_TIE_SHARE:
        return None
    tied = np.union1d(ties, ties + 1)
    indices = order[tied]
    order[tied] = indices[np.lexsort((numbers[indices], packed[tied]))]
    return order


@lru_cache(maxsize=16)
def derive_key(*parts: int) -> int:
    """Return one 128-bit key for several numbers. Similar numbers give unrelated keys."""
    words = np.random.SeedSequence([part & (2**64 - 1) for part in parts]).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@lru_cache(maxsize=32)
def cached_permutation(length: int, key: int) -> Permutation:
    """Return a `Permutation`, from a cache of recently used permutations."""
    return Permutation(length, key)
