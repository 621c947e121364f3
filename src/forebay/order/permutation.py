"""Permutations drawn by a key: exact, and without a table where there is much to permute."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from forebay.core.spec import Array

__all__ = ["Permutation", "Positions", "Scramble", "derive_key", "drawn_permutation"]

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Scramble:
    """A computed permutation of range(length), as plain numbers: add the term, then a round for each factor.

    A round multiplies, keeps the bits of the mask, and folds the number onto itself by the shift; what comes out at
    `length` or beyond goes through everything again.
    """

    length: int
    mask: int
    term: int
    factors: tuple[int, ...]
    shift: int


class Permutation:
    """A permutation of range(length), drawn by a key; called with positions, it gives where they go.

    Up to `TABLE_LENGTH` it is a table: the ranks of random numbers. Beyond, it is computed: an addition, then rounds
    of multiply and shift, each of which is one-to-one on numbers of k bits; what falls outside the range
    is sent through again until it falls inside, which keeps the whole one-to-one. Only raw bits of Philox are
    used, which NumPy promises never to change, so an order is the same on every machine and version.
    """

    TABLE_LENGTH = 1 << 13  # below, few bits leave multiplying too little to mix
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
        self._term, self._factors = constants[0], constants[1:] | word(1)  # odd, so that multiplying can be undone
        self._shift = word((bits + 1) // 2)

    @cached_property
    def scramble(self) -> Scramble | None:
        """What it is computed from; None where it is a table."""
        if self._table is not None:
            return None
        factors = tuple(map(int, self._factors))
        return Scramble(self._length, int(self._mask), int(self._term), factors, int(self._shift))

    def __call__(self, positions: Positions) -> Positions:
        if self._table is not None:
            return self._table[positions]
        numbers = self._scramble(positions.astype(self._word))
        outside = np.flatnonzero(numbers >= self._length)
        while outside.size:
            again = self._scramble(numbers[outside])
            numbers[outside] = again
            outside = outside[again >= self._length]
        return numbers.astype(np.int64)

    def _scramble(self, numbers: Array) -> Array:
        """One-to-one on numbers of k bits, in place."""
        shifted = np.empty_like(numbers)
        numbers += self._term
        for factor in self._factors:
            numbers *= factor
            numbers &= self._mask
            np.right_shift(numbers, self._shift, out=shifted)
            numbers ^= shifted
        return numbers


def _ranks(numbers: Array) -> Positions:
    """Which number comes first, second, and so on; equal ones as they stand."""
    order = np.argsort(numbers)  # several times as fast as a stable sort, and the same where no two are equal
    ranked = numbers[order]
    if (ranked[1:] == ranked[:-1]).any():
        order = np.argsort(numbers, kind="stable")
    return order.astype(np.int64, copy=False)


@lru_cache(maxsize=16)
def derive_key(*parts: int) -> int:
    """One 128-bit key from several numbers: near numbers give unrelated keys."""
    words = np.random.SeedSequence([part & (2**64 - 1) for part in parts]).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@lru_cache(maxsize=32)
def drawn_permutation(length: int, key: int) -> Permutation:
    """The same as `Permutation`, made once for as long as it is asked for."""
    return Permutation(length, key)
