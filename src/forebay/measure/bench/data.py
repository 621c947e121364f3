"""The data of a case: arrays, files and rows, the same in every process because they come from one seed."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from forebay.measure.bench.cold import write_large
from forebay.measure.bench.model import Skip, Work
from forebay.measure.bench.stamps import stamped

__all__ = ["array", "generator_rows", "slow_python", "source_array", "write_file"]

SEED = 20240607
POOL_ROWS = 1024


def array(work: Work) -> np.ndarray[Any, Any]:
    """The rows of a case in private memory, as a user would hold them; stamped with their numbers where it asks so."""
    make = _stamped_array if work.options.get("stamped") else _array
    return make(work.rows, work.shape, work.dtype)


def source_array(work: Work) -> np.ndarray[Any, Any]:
    """The rows of an entry that takes arrays: mapped where it was given a file, else from memory."""
    return np.asarray(np.load(work.path, mmap_mode="r")) if work.path else array(work)


def write_file(work: Work, kind: str, folder: Path) -> Path:
    """Write the rows as a file of this kind; the pages stay in the cache, which is what the cases want."""
    path = folder / f"rows-{kind}.{'npz' if kind == 'npz' else 'npy'}"
    if kind == "sparse":
        _write_sparse(work, path)
    elif kind == "disk":
        write_large(work, path)
    elif kind == "npz":
        np.savez(path, rows=array(work))
    elif work.options.get("stamped"):
        _write_stamped(work, path)
    else:
        np.save(path, array(work))
    return path


def generator_rows(work: Work) -> Iterator[np.ndarray[Any, Any]]:
    """Rows as a cheap generator gives them: the loader is measured, not the generator."""
    pool = list(_array(POOL_ROWS, work.shape, work.dtype))
    for row in range(work.rows):
        yield pool[row % POOL_ROWS]


def slow_python(batch: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A map in pure Python, which holds the GIL for some milliseconds a batch."""
    rows = [[value * 0.5 + value * value for value in row] for row in batch.tolist()]
    for _ in range(4):
        rows = [[value * 0.5 + 1.0 for value in row] for row in rows]
    return np.asarray(rows, batch.dtype)


@lru_cache(maxsize=1)
def _stamped_array(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return stamped(rows, shape, dtype)


@lru_cache(maxsize=1)
def _array(rows: int, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    if np.dtype(dtype) != np.float32:
        raise Skip(f"bench data is float32; {dtype} comes from sparse files only")
    return np.random.default_rng(SEED).random((rows, *shape), dtype=np.float32)


def _write_stamped(work: Work, path: Path) -> None:
    """Not kept in memory, and on the disk before anybody measures: it is gigabytes."""
    with path.open("wb") as file:
        np.save(file, stamped(work.rows, work.shape, work.dtype))
        file.flush()
        os.fsync(file.fileno())


def _write_sparse(work: Work, path: Path) -> None:
    # A hole in a file reads as zeros and takes no disk: a billion rows cost nothing until they are read.
    header = {"descr": np.dtype(work.dtype).str, "fortran_order": False, "shape": (work.rows, *work.shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        row_nbytes = np.dtype(work.dtype).itemsize * int(np.prod(work.shape, dtype=np.int64))
        file.truncate(file.tell() + work.rows * row_nbytes)
