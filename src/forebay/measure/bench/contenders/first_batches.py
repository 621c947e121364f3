"""Forebay as a contender for the first batch of many rows.

`_PIPELINES` has one pipeline for each measured way to choose, combine, pack or batch rows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import forebay as fb
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["first_batch_feed"]

LENGTHS = 250  # texts have 1 to 250 tokens; other rows have one of 250 labels
PACKED_TOKENS, BATCH_TOKENS = 2048, 8192  # tokens of a packed row; tokens of a batch of padded texts

_Array = np.ndarray[Any, np.dtype[Any]]


def first_batch_feed(work: Workload) -> StartEpoch:
    """Describe the pipeline that the option "rows" names, and start its feed.

    Arguments of the pipeline, such as masks and weights, are made only once per process.
    """
    pipeline = _PIPELINES[work.options["rows"]](work)
    running_feed = pipeline.shard(0, 1).feed("numpy")
    return lambda: running_feed


def _mask(work: Workload) -> fb.Pipeline:
    return _rows(work).select(_random_mask(work.rows)).shuffle(seed=0).batch(work.batch)


def _numbers(work: Workload) -> fb.Pipeline:
    return _rows(work).select(_random_numbers(work.rows)).shuffle(seed=0).batch(work.batch)


def _split(work: Workload) -> fb.Pipeline:
    return _rows(work).split(0.9, 0.1)[0].shuffle(seed=0).batch(work.batch)


def _skip(work: Workload) -> fb.Pipeline:
    return _rows(work).skip(work.rows // 3).shuffle(seed=0).batch(work.batch)


def _interleave(work: Workload) -> fb.Pipeline:
    thirds = [fb.from_arrays(part).shuffle(seed=0) for part in np.array_split(_labels(work.rows), 3)]
    return fb.interleave(*thirds, weights=(5, 3, 2), stop="all", seed=0).batch(work.batch)


def _window(work: Workload) -> fb.Pipeline:
    return _rows(work).window(64, horizon=12).shuffle(seed=0).batch(work.batch)


def _sample(work: Workload) -> fb.Pipeline:
    return _rows(work).sample(weights=_weights(work.rows)).batch(work.batch)


def _filter(work: Workload) -> fb.Pipeline:
    return _rows(work).filter(lambda label: label % 2 == 0).shuffle(seed=0).batch(work.batch)


def _pack(work: Workload) -> fb.Pipeline:
    return _texts(work).pack(PACKED_TOKENS).batch(8)


def _tokens(work: Workload) -> fb.Pipeline:
    return _texts(work).shuffle(seed=0).batch(tokens=BATCH_TOKENS, pad=0)


def _rows(work: Workload) -> fb.Pipeline:
    return fb.from_arrays(_labels(work.rows))


def _texts(work: Workload) -> fb.Pipeline:
    offsets = _offsets(work.rows)
    return fb.from_ragged(np.broadcast_to(np.uint8(1), (int(offsets[-1]),)), offsets)  # one byte stands for all tokens


@cache
def _labels(rows: int) -> _Array:
    return np.resize(np.arange(LENGTHS, dtype=np.uint8), rows)


@cache
def _random_mask(rows: int) -> _Array:
    return np.random.default_rng(0).integers(0, 2, rows, dtype=np.uint8).view(bool)


@cache
def _random_numbers(rows: int) -> _Array:
    return np.flatnonzero(_random_mask(rows))


@cache
def _weights(rows: int) -> _Array:
    return np.random.default_rng(0).random(rows)


@cache
def _offsets(rows: int) -> _Array:
    lengths = np.random.default_rng(0).integers(1, LENGTHS + 1, rows, dtype=np.uint8)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


_PIPELINES: dict[str, Callable[[Workload], fb.Pipeline]] = {
    "mask": _mask,
    "numbers": _numbers,
    "split": _split,
    "skip": _skip,
    "interleave": _interleave,
    "window": _window,
    "sample": _sample,
    "filter": _filter,
    "pack": _pack,
    "tokens": _tokens,
}
