"""Exact permutations selected by a key; long ones need no table."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from forebay.core.spec import Array

__all__ = ["Permutation", "PermutationParams", "Positions", "cached_permutation", "derive_key"]

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PermutationParams:
    """The constants of a computed permutation of range(length); a device computes it from these.

    First add `term`. Then run one round for each factor: multiply by the factor, keep the bits of `mask`, and XOR the
    number with itself shifted right by `shift`. If the result is not below `length`, repeat everything with it.
    """

    length: int
    mask: int
    term: int
    factors: tuple[int, ...]
    shift: int


class Permutation:
    """A permutation of range(length) selected by a key; a call maps positions to their images.

    Up to `TABLE_LENGTH` it is a table: the indices that sort random numbers. A longer permutation is computed: one
    addition, then rounds of multiply and shift. Each round is a bijection on numbers of k bits. A result outside the
    range goes through the rounds again until it is inside, so the whole is a bijection on the range. The constants
    come from raw Philox bits, which NumPy guarantees never to change. So an order is the same on every machine and
    version.
    """

    TABLE_LENGTH = 1 << 13  # shorter ranges have too few bits for the multiplication to mix well
    _ROUNDS = 5

    def __init__(self, length: int, key: int) -> None:
        self._length = length
        self._table: Positions | None = None
        raw = np.random.Philox(key=key)
        if length <= self.TABLE_LENGTH:
            self._table = _ranks(raw.random_raw(length))
            return
        bits = (length - 1).bit_length()
        word: type[np.unsignedinteger[Any]] = np.uint32 if bits <= 32 else np.uint64
        constants = raw.random_raw(self._ROUNDS + 1).astype(word)
        self._word = word
        self._mask = word((1 << bits) - 1)
        self._term, self._factors = constants[0], constants[1:] | word(1)  # multiplying by an odd number is invertible
        self._shift = word((bits + 1) // 2)

    @cached_property
    def permutation_params(self) -> PermutationParams | None:
        """The constants of a computed permutation; None if it is a table."""
        if self._table is not None:
            return None
        factors = tuple(map(int, self._factors))
        return PermutationParams(self._length, int(self._mask), int(self._term), factors, int(self._shift))

    def __call__(self, positions: Positions) -> Positions:
        if self._table is not None:
            return self._table[positions]
        numbers = self._run_rounds(positions.astype(self._word))
        outside = np.flatnonzero(numbers >= self._length)
        while outside.size:
            repeated = self._run_rounds(numbers[outside])
            numbers[outside] = repeated
            outside = outside[repeated >= self._length]
        return numbers.astype(np.int64)

    def _run_rounds(self, numbers: Array) -> Array:
        """Apply the addition and all rounds in place: a bijection on numbers of k bits."""
        shifted = np.empty_like(numbers)
        numbers += self._term
        for factor in self._factors:
            numbers *= factor
            numbers &= self._mask
            np.right_shift(numbers, self._shift, out=shifted)
            numbers ^= shifted
        return numbers


def _ranks(numbers: Array) -> Positions:
    """Return the indices that sort the numbers; equal numbers keep their order."""
    order = np.argsort(numbers)  # several times faster than a stable sort, and identical if all numbers differ
    ranked = numbers[order]
    if (ranked[1:] == ranked[:-1]).any():
        order = np.argsort(numbers, kind="stable")
    return order.astype(np.int64, copy=False)


@lru_cache(maxsize=16)
def derive_key(*parts: int) -> int:
    """Derive one 128-bit key from several numbers; similar numbers give unrelated keys."""
    words = np.random.SeedSequence([part & (2**64 - 1) for part in parts]).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@lru_cache(maxsize=32)
def cached_permutation(length: int, key: int) -> Permutation:
    """Return a `Permutation`, from a cache of recently used ones."""
    return Permutation(length, key)
