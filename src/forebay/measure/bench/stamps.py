"""Rows that carry their own number, so that whoever receives them can say which they are, and that all of them came.

Four gigabytes of random numbers take longer to make than to measure with: a block of them is repeated instead, and
every row stamped. Nothing between host and device looks at the contents, and no two rows share memory.
"""

from typing import Any

import numpy as np

__all__ = ["WrongRowsError", "check_rows", "first_elements_total", "stamped"]

SEED = 20240608
BLOCK_NBYTES = 32 << 20
STAMP_NBYTES = 4
LARGEST_EXACT = 1 << 24  # row numbers beyond it are not whole in float32


class WrongRowsError(Exception):
    """What arrived is not what was sent."""


def stamped(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """This many rows; the first element of a row of float32, or the first four bytes of one of bytes, is its number."""
    out = np.empty((rows, *shape), dtype)
    flat = out.reshape(rows, -1)
    block = _random_rows(min(rows, max(1, BLOCK_NBYTES // flat[0].nbytes)), flat.shape[1], flat.dtype)
    for start in range(0, rows, len(block)):
        flat[start : start + len(block)] = block[: rows - start]
    if flat.dtype == np.float32:
        _refuse_inexact(rows)
        flat[:, 0] = np.arange(rows)
    else:
        flat[:, :STAMP_NBYTES] = np.arange(rows, dtype="<u4").view(np.uint8).reshape(rows, STAMP_NBYTES)
    return out


def check_rows(batch: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Refuse a batch that is not, byte for byte, rows of the source, each of them once."""
    numbers = _numbers(batch)
    if len(np.unique(numbers)) != len(numbers):
        raise WrongRowsError(f"a batch of {len(batch)} rows holds only {len(np.unique(numbers))} different ones")
    if numbers.max() >= len(source) or not np.array_equal(batch, source[numbers]):
        raise WrongRowsError(f"a batch of {len(batch)} rows differs from the rows of the source it is stamped as")


def first_elements_total(source: np.ndarray[Any, Any]) -> int:
    """The sum of the first element of every row: what an epoch must come to."""
    column = source.reshape(len(source), -1)[:, 0]
    return int(column.sum(dtype=np.float64 if column.dtype.kind == "f" else np.int64))


def _random_rows(rows: int, width: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(SEED)
    if dtype == np.float32:
        return generator.random((rows, width), np.float32)
    if dtype == np.uint8:
        return generator.integers(0, 256, (rows, width), np.uint8)
    raise ValueError(f"stamped rows are float32 or uint8, not {dtype}")


def _refuse_inexact(rows: int) -> None:
    if rows > LARGEST_EXACT:
        raise ValueError(f"{rows} rows of float32 cannot be stamped: beyond {LARGEST_EXACT} a number is not exact")


def _numbers(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = batch.reshape(len(batch), -1)
    if flat.dtype == np.float32:
        return flat[:, 0].astype(np.int64)
    return np.ascontiguousarray(flat[:, :STAMP_NBYTES]).view("<u4")[:, 0].astype(np.int64)
