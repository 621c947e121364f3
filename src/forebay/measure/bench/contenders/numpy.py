"""NumPy without a loader: baselines of the CPU cases, and conversions of one batch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from forebay.measure.bench.data import generate_rows, map_in_python, open_array
from forebay.measure.bench.model import Skip, StartEpoch, Workload
from forebay.measure.bench.proc_stats import available_nbytes

__all__ = ["convert_ready_batches", "copy_rows", "take_batches"]

ALIGNMENT = 64  # bytes; TensorFlow and JAX need no copy of memory with this alignment


def take_batches(work: Workload) -> StartEpoch:
    """Gather each batch with `np.take` into one reused array, in one thread.

    Every epoch has a new permutation. With the option "map", map each batch with `map_in_python`.
    """
    rows, generator = open_array(work), np.random.default_rng(0)
    out = np.empty((work.batch, *work.shape), rows.dtype)
    _check_permutation_fits(work)

    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        order = generator.permutation(work.rows)
        for start in range(0, work.rows, work.batch):
            indices = order[start : start + work.batch]
            # Without mode="clip", NumPy first buffers the whole output.
            yield np.take(rows, indices, axis=0, out=out[: len(indices)], mode="clip")

    return (lambda: map(map_in_python, epoch())) if work.options.get("map") else epoch


def copy_rows(work: Workload) -> StartEpoch:
    """Copy each row of a generator into a new array, in a plain loop."""

    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        rows = generate_rows(work)
        for start in range(0, work.rows, work.batch):
            out = np.empty((min(work.batch, work.rows - start), *work.shape), work.dtype)
            for position, row in enumerate(islice(rows, len(out))):
                out[position] = row
            yield out

    return epoch


def convert_ready_batches(work: Workload, convert: Callable[[np.ndarray[Any, Any]], Any]) -> StartEpoch:
    """Convert the same ready-made batch repeatedly; with the option to="numpy", do not convert it."""
    batch = _aligned_batch(work)
    hand_off = (lambda ready: ready) if work.options["to"] == "numpy" else convert

    def epoch() -> Iterable[Any]:
        return (hand_off(batch) for _ in range(work.batches))

    return epoch


def _check_permutation_fits(work: Workload) -> None:
    # A permutation has indices of 8 bytes. Require twice its size, so that memory remains for the other entries.
    needed, available = 2 * 8 * work.rows, available_nbytes()
    if available is not None and needed > available:
        raise Skip(
            f"a permutation of {work.rows:,} rows needs {needed >> 30} GiB of free memory, "
            f"and {available >> 30} GiB are free"
        )


def _aligned_batch(work: Workload) -> np.ndarray[Any, Any]:
    count = work.batch * int(np.prod(work.shape))
    memory = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count * 4].view(np.float32).reshape(work.batch, *work.shape)
