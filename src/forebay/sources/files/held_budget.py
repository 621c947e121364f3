"""`HeldBudget`: limits the memory that Forebay allocates for the data of one file.

Held bytes are the memory of decompressed or parsed data that a source keeps. A few bytes of metadata can claim an array
of any size. So before it allocates memory, each file format passes the claimed numbers to this module.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from forebay.core.machine import Machine
from forebay.core.spec import format_nbytes
from forebay.errors import BudgetError, SourceError

__all__ = ["DEFAULT_HELD_NBYTES", "MAX_ITEM_NBYTES", "HeldBudget", "is_valid_claim", "validate_claim"]

DEFAULT_HELD_NBYTES = 2**30  # bytes of decompressed data in the caches of a source, if the user sets no budget
_MIN_LIMIT_NBYTES = 64 * 2**20  # bytes; Forebay never refuses a file that needs no more memory than this
_MAX_AXES = 64  # NumPy's limit
MAX_ITEM_NBYTES = 64 * 2**20  # bytes of a single value, such as a string of fixed length
_MAX_ARRAY_NBYTES = 2**62  # bytes; safely below NumPy's limit of 2**63 - 1
_MAX_SHOWN_CHARACTERS = 200  # of a shape or dtype in an error message


@dataclass(frozen=True, slots=True)
class HeldBudget:
    """How much decompressed data of one file may be in memory."""

    cached_nbytes: int  # decompressed data that the caches hold
    max_nbytes: int  # decompressed data that the file may need at once

    @classmethod
    def of(cls, max_held_nbytes: int | None) -> "HeldBudget":
        """Return the budget for the user's `max_held_bytes`.

        For None, the caches hold up to 1 GiB. A file may need up to half of the memory of this machine, or 1 GiB if
        that is more. For a value, the caches hold up to this value. A file may need up to the value, or 64 MiB if that
        is more.
        """
        if max_held_nbytes is None:
            return cls(DEFAULT_HELD_NBYTES, max(DEFAULT_HELD_NBYTES, _half_of_memory()))
        return cls(max_held_nbytes, max(max_held_nbytes, _MIN_LIMIT_NBYTES))

    def validate(self, claim: str, nbytes: int) -> None:
        """Raise BudgetError if a file needs more memory at once than the budget allows.

        `claim` names the file and what it claims.
        """
        if nbytes > self.max_nbytes:
            raise BudgetError(
                f"{claim}. This needs {nbytes} bytes of memory, more than the limit of "
                f"{format_nbytes(self.max_nbytes)}. If you trust the file, pass max_held_bytes={nbytes} or more."
            )


def validate_claim(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise SourceError if no NumPy array can have this shape and dtype.

    Also raise it if a single value takes more than `MAX_ITEM_NBYTES`. `name` contains the array and its file.
    """
    if not is_valid_claim(shape, dtype) or dtype.itemsize > MAX_ITEM_NBYTES:
        raise SourceError(
            f"{name} is damaged: it claims to hold {_shorten(dtype)} of shape {_shorten(tuple(shape))}. "
            "Write or download it again."
        )


def is_valid_claim(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Return whether a NumPy array can have this shape and dtype.

    Lengths must be nonnegative integers. The nonzero lengths times the item size must be below `_MAX_ARRAY_NBYTES`.
    """
    axes = (*shape, *dtype.shape)  # a dtype may have its own shape, such as ("f4", (3,))
    if len(axes) > _MAX_AXES or not all(type(length) is int and length >= 0 for length in axes):
        return False
    nbytes: int = math.prod(length for length in axes if length) * dtype.base.itemsize
    return nbytes < _MAX_ARRAY_NBYTES


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."


@cache
def _half_of_memory() -> int:
    return Machine.detect().memory_nbytes // 2
