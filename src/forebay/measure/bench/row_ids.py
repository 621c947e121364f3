"""Rows that contain their row number, so that a consumer can check them.

Making four gigabytes of random numbers takes longer than the measurement. Therefore the rows repeat one random block,
and each row starts with its number. Repetition is no advantage for any loader: no two rows share memory, and loaders do
not look at the contents.
"""

from typing import Any

import numpy as np

__all__ = ["WrongRowsError", "check_rows", "make_numbered_rows", "sum_first_elements"]

SEED = 20240608  # arbitrary, but the same in every process
BLOCK_NBYTES = 32 << 20  # size of the random block
ROW_ID_NBYTES = 4  # bytes of the row number in a uint8 row
MAX_EXACT = 1 << 24  # float32 represents all whole numbers up to this one


class WrongRowsError(Exception):
    """The consumer received rows that differ from the rows of the source."""


def make_numbered_rows(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Make random rows that begin with their row number.

    The number is the first element of a float32 row, and the first four bytes of a uint8 row.
    """
    out = np.empty((rows, *shape), dtype)
    flat = out.reshape(rows, -1)
    block = _random_rows(min(rows, max(1, BLOCK_NBYTES // flat[0].nbytes)), flat.shape[1], flat.dtype)
    for start in range(0, rows, len(block)):
        flat[start : start + len(block)] = block[: rows - start]
    if flat.dtype == np.float32:
        _check_exact(rows)
        flat[:, 0] = np.arange(rows)
    else:
        flat[:, :ROW_ID_NBYTES] = np.arange(rows, dtype="<u4").view(np.uint8).reshape(rows, ROW_ID_NBYTES)
    return out


def check_rows(batch: np.ndarray[Any, Any], source: np.ndarray[Any, Any], *, may_repeat: bool = False) -> None:
    """Check that each row equals its source row, and occurs once unless `may_repeat`."""
    ids = _row_ids(batch)
    if not may_repeat and len(np.unique(ids)) != len(ids):
        raise WrongRowsError(f"a batch of {len(batch)} rows contains only {len(np.unique(ids))} different rows")
    if ids.max() >= len(source) or not np.array_equal(batch, source[ids]):
        raise WrongRowsError(f"a batch of {len(batch)} rows differs from the source rows with the same numbers")


def sum_first_elements(source: np.ndarray[Any, Any]) -> int:
    """Return the sum of the first elements of all rows.

    If an epoch has every row once, the first elements of its batches must have this sum too.
    """
    column = source.reshape(len(source), -1)[:, 0]
    return int(column.sum(dtype=np.float64 if column.dtype.kind == "f" else np.int64))


def _random_rows(rows: int, width: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(SEED)
    if dtype == np.float32:
        return generator.random((rows, width), np.float32)
    if dtype == np.uint8:
        return generator.integers(0, 256, (rows, width), np.uint8)
    raise ValueError(f"numbered rows cannot have dtype {dtype}. Use float32 or uint8.")


def _check_exact(rows: int) -> None:
    if rows > MAX_EXACT:
        raise ValueError(
            f"{rows} rows cannot be numbered in float32, which is not exact beyond {MAX_EXACT}. Use fewer rows."
        )


def _row_ids(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = batch.reshape(len(batch), -1)
    if flat.dtype == np.float32:
        return flat[:, 0].astype(np.int64)
    return np.ascontiguousarray(flat[:, :ROW_ID_NBYTES]).view("<u4")[:, 0].astype(np.int64)
