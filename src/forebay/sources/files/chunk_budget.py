"""`ChunkBudget`: refuses a file whose chunks need more memory than the user allows.

A file can claim any number and any size of chunks. This module checks these claims before Forebay allocates memory.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import format_nbytes
from forebay.errors import BudgetError, SourceError
from forebay.sources.files.chunked import MIN_CACHED_CHUNKS, ChunkBoundaries
from forebay.sources.files.held_budget import HeldBudget, validate_claim

__all__ = ["ChunkBudget", "ChunkClaim"]

_CHUNK_RECORD_NBYTES = 64  # bytes with which a column and its cache record the state of one chunk
_CHUNK_READ_NBYTES = 1024  # bytes of Python objects for each stored chunk that one read touches
_MIN_CHUNKS = 2**16  # chunks; so many are allowed with any budget


@dataclass(frozen=True, slots=True)
class ChunkClaim:
    """What the metadata of a file says about one chunked array."""

    name: str  # array and file, for error messages
    shape: Sequence[int]
    dtype: np.dtype[Any]
    chunk_shape: Sequence[int]  # of the smallest unit that can be decompressed
    rows_per_read: int  # rows that one read decompresses

    @property
    def reads(self) -> int:
        """Number of reads that cover all rows."""
        return -(-self.shape[0] // self.rows_per_read)

    @property
    def chunks_per_read(self) -> int:
        lengths = (self._longest_read, *self.shape[1:])
        return math.prod(-(-length // chunk) for length, chunk in zip(lengths, self.chunk_shape, strict=True))

    @property
    def chunk_nbytes(self) -> int:
        return math.prod(self.chunk_shape) * self.dtype.itemsize

    @property
    def read_nbytes(self) -> int:
        return self._longest_read * math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def _longest_read(self) -> int:
        return min(self.rows_per_read, self.shape[0])


class ChunkBudget:
    """Limits the memory for all chunked columns of one file."""

    def __init__(self, budget: HeldBudget) -> None:
        self._budget = budget
        # Totals of all columns for which `boundaries` was called: chunks, and bytes of the smallest possible caches.
        self._records, self._nbytes = 0, 0

    @property
    def max_nbytes(self) -> int:
        return self._budget.max_nbytes

    def boundaries(self, claim: ChunkClaim) -> ChunkBoundaries:
        """Return the first row of each read of a column, then its number of rows.

        Raise BudgetError if this column, together with the columns of earlier calls, exceeds the budget.
        """
        self.validate_read(claim)
        counted = f"{claim.name} claims {claim.reads} chunks"
        if self._records:
            counted += f", and the arrays before it claim {self._records}"
        self._records += claim.reads
        self._validate_count(counted, self._records, _CHUNK_RECORD_NBYTES)
        self._nbytes += min(claim.reads, MIN_CACHED_CHUNKS) * claim.read_nbytes
        self._budget.validate(
            f"one read of {claim.name} decompresses {claim.read_nbytes} bytes, and the cache needs room for "
            f"up to {MIN_CACHED_CHUNKS} reads of each array",
            self._nbytes,
        )
        return np.append(np.arange(0, claim.shape[0], claim.rows_per_read, dtype=np.int64), claim.shape[0])

    def validate_read(self, claim: ChunkClaim) -> None:
        """Raise BudgetError if one read needs too much memory, or SourceError for invalid chunks."""
        validate_claim(claim.name, claim.shape, claim.dtype)
        is_valid = claim.rows_per_read > 0 and all(length > 0 for length in claim.chunk_shape)
        if not is_valid or len(claim.chunk_shape) != len(claim.shape):
            raise SourceError(
                f"{claim.name} is damaged: it claims chunks of shape {tuple(claim.chunk_shape)}. "
                "Write or download it again."
            )
        self._budget.validate(f"{claim.name} claims chunks of shape {tuple(claim.chunk_shape)}", claim.chunk_nbytes)
        counted = f"{claim.name} claims {claim.chunks_per_read} chunks that one read needs"
        self._validate_count(counted, claim.chunks_per_read, _CHUNK_READ_NBYTES)

    def _validate_count(self, counted: str, count: int, record_nbytes: int) -> None:
        if count > max(_MIN_CHUNKS, self._budget.cached_nbytes // record_nbytes):
            raise BudgetError(
                f"{counted}. To manage them takes {count * record_nbytes} bytes of memory, more than the budget of "
                f"{format_nbytes(self._budget.cached_nbytes)}. If you trust the file, pass "
                f"max_held_bytes={count * record_nbytes} or more, or write larger chunks."
            )
