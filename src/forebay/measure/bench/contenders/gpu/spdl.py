"""SPDL, with a gather written for it: threads take rows straight into pinned memory, others copy them behind."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from spdl.pipeline import PipelineBuilder

from forebay.measure.bench.contenders.gpu import endless_indices, epochs_of
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

GATHERING, COPYING = 12, 2  # threads


def epochs(work: Work) -> StartEpoch:
    builder = PipelineBuilder().add_source(endless_indices(work))
    builder.pipe(_Gather(work), concurrency=GATHERING, output_order="input", max_failures=0)
    builder.pipe(_Copy(), concurrency=COPYING, output_order="input", max_failures=0)
    pipeline = builder.add_sink(4).build(num_threads=GATHERING + COPYING + 1)
    pipeline.start()
    return epochs_of(work, _owned(iter(pipeline.get_iterator())))


class _Gather:
    """Rows into memory that torch's allocator keeps pinned for the next batch."""

    def __init__(self, work: Work) -> None:
        self._rows = array(work)
        self._dtype = torch.from_numpy(self._rows[:0]).dtype

    def __call__(self, indices: np.ndarray[Any, Any]) -> torch.Tensor:
        batch = torch.empty((len(indices), *self._rows.shape[1:]), dtype=self._dtype, pin_memory=True)
        np.take(self._rows, indices, axis=0, out=batch.numpy(), mode="clip")
        return batch


class _Copy:
    """A copy on a stream of the thread's own, waited for there."""

    def __init__(self) -> None:
        self._own = threading.local()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        stream = getattr(self._own, "stream", None) or self._open()
        with torch.cuda.stream(stream):
            copied = batch.to("cuda", non_blocking=True)
        stream.synchronize()
        return copied

    def _open(self) -> Any:
        self._own.stream = torch.cuda.Stream()
        return self._own.stream


def _owned(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Tell torch who uses memory of another thread's stream, or it would be written again too early."""
    for batch in batches:
        batch.record_stream(torch.cuda.current_stream())
        yield batch
