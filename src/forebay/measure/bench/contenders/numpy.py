"""NumPy without a loader: baselines of the CPU cases, and conversions of one batch."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from forebay.measure.bench.data import (
    PACKING_ROWS,
    BucketSampler,
    TextSource,
    generate_rows,
    make_texts,
    map_in_python,
    open_array,
)
from forebay.measure.bench.model import Skip, StartEpoch, Workload
from forebay.measure.bench.proc_stats import available_nbytes

__all__ = ["convert_ready_batches", "copy_rows", "first_fit_rows", "pad_rows", "take_batches"]

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


def first_fit_rows(work: Workload) -> StartEpoch:
    """Put each text into the first open row with room, in a plain loop.

    If no open row has room for a text, open a new row. If `PACKING_ROWS` rows are already open, first move the oldest
    of them to the next batch.
    """
    texts, length = TextSource(work), work.shape[0]

    def epoch() -> Iterator[dict[str, Any]]:
        ready: list[_PackedRow] = []
        open_rows: list[_PackedRow] = []
        for number in range(len(texts)):
            text = texts[number]
            row = next((row for row in open_rows if row.used + len(text) <= length), None)
            if row is None:
                if len(open_rows) == PACKING_ROWS:
                    ready.append(open_rows.pop(0))
                row = _PackedRow(length, work.dtype)
                open_rows.append(row)
            row.add(text)
            if len(ready) == work.batch:
                yield _stack_rows(ready)
                ready.clear()
        ready += open_rows
        for start in range(0, len(ready), work.batch):
            yield _stack_rows(ready[start : start + work.batch])

    return epoch


class _PackedRow:
    """A row of several texts, with segment ids and positions."""

    def __init__(self, length: int, dtype: str) -> None:
        self.used = self.texts = 0
        self.tokens = np.zeros(length, dtype)
        self.segment_ids, self.positions = np.zeros(length, np.int32), np.zeros(length, np.int32)

    def add(self, text: np.ndarray[Any, Any]) -> None:
        place = slice(self.used, self.used + len(text))
        self.used, self.texts = place.stop, self.texts + 1
        self.tokens[place], self.segment_ids[place], self.positions[place] = text, self.texts, np.arange(len(text))


def _stack_rows(rows: list[_PackedRow]) -> dict[str, Any]:
    return {name: np.stack([getattr(row, name) for row in rows]) for name in ("tokens", "segment_ids", "positions")}


def pad_rows(work: Workload) -> StartEpoch:
    """Pad the batches of a `BucketSampler` in one thread: the baseline of its case."""
    texts, sampler = make_texts(work), BucketSampler(work)

    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        for rows in sampler:
            batch = [texts.values[texts.offsets[row] : texts.offsets[row + 1]] for row in rows]
            padded = np.zeros((len(batch), max(map(len, batch))), batch[0].dtype)
            for target, text in zip(padded, batch, strict=True):
                target[: len(text)] = text
            yield padded

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
