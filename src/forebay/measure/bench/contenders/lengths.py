"""Batches of texts of similar length: a NumPy loop, tf.data and a DataLoader with a batch sampler.

All use the same buckets, in which the longest text is at most a tenth longer than the shortest.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from forebay.measure.bench.data import make_texts
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["numpy_loop", "tf_buckets", "torch_buckets"]

GROWTH = 1.1  # of the bounds from bucket to bucket
SHUFFLE_BUFFER = 10_000  # elements; tf.data shuffles within such a buffer


def numpy_loop(work: Workload) -> StartEpoch:
    """Pad the batches of the sampler in one thread. This is the baseline."""
    texts, sampler = make_texts(work), _BucketSampler(work)

    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        for rows in sampler:
            batch = [texts.values[texts.offsets[row] : texts.offsets[row + 1]] for row in rows]
            padded = np.zeros((len(batch), max(map(len, batch))), batch[0].dtype)
            for target, text in zip(padded, batch, strict=True):
                target[: len(text)] = text
            yield padded

    return epoch


def tf_buckets(work: Workload) -> StartEpoch:
    """Let tf.data shuffle in a buffer, fill buckets and pad."""
    import tensorflow as tf

    texts, tokens = make_texts(work), int(work.options["tokens"])
    bounds = _bounds(int(texts.lengths.max()))
    ragged = tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_splits(texts.values, texts.offsets))
    rows = ragged.map(lambda text: text)  # turns each row into a plain tensor
    dataset = rows.shuffle(SHUFFLE_BUFFER, seed=0).bucket_by_sequence_length(
        lambda text: tf.shape(text)[0],
        bucket_boundaries=[bound + 1 for bound in bounds[:-1]],
        bucket_batch_sizes=[tokens // bound for bound in bounds],
    )
    prefetched = dataset.prefetch(tf.data.AUTOTUNE)
    return lambda: prefetched


def torch_buckets(work: Workload) -> StartEpoch:
    """Use a DataLoader with a batch sampler, and `pad_sequence` as its collate function."""
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import DataLoader

    texts, workers = make_texts(work), int(work.options["workers"])
    rows = torch.split(torch.from_numpy(texts.values), texts.lengths.tolist())
    loader = DataLoader(
        rows,
        batch_sampler=_BucketSampler(work),
        collate_fn=_Collate(pad_sequence),
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: loader


class _Collate:
    """Pads the rows of a batch. Unlike a lambda, it can be pickled for the workers."""

    def __init__(self, pad_sequence: Any) -> None:
        self._pad_sequence = pad_sequence

    def __call__(self, batch: list[Any]) -> Any:
        return self._pad_sequence(batch, batch_first=True)


class _BucketSampler:
    """Yields the row numbers of each batch: shuffled rows of one bucket, and shuffled batches."""

    def __init__(self, work: Workload) -> None:
        lengths = make_texts(work).lengths
        bounds, tokens = _bounds(int(lengths.max())), int(work.options["tokens"])
        numbers = np.searchsorted(bounds, lengths)
        self._buckets = [(np.flatnonzero(numbers == number), tokens // bound) for number, bound in enumerate(bounds)]
        self._generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return sum(-(-len(rows) // size) for rows, size in self._buckets)

    def __iter__(self) -> Iterator[list[int]]:
        batches: list[list[int]] = []
        for rows, size in self._buckets:
            shuffled = self._generator.permutation(rows).tolist()
            batches += [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
        return (batches[number] for number in self._generator.permutation(len(batches)))


def _bounds(longest: int) -> Sequence[int]:
    """Return the largest length of each bucket."""
    bounds = [longest]
    while bounds[-1] > 1:
        bounds.append(min(bounds[-1] - 1, int(bounds[-1] / GROWTH)))
    return bounds[::-1]
