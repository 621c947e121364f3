"""SPDL with stages written for this workload."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from spdl.pipeline import PipelineBuilder

from forebay.measure.bench.contenders.gpu import endless_index_batches, split_into_epochs
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["pipeline"]

GATHER_THREADS, COPY_THREADS = 12, 2


def pipeline(work: Workload) -> StartEpoch:
    """Gather rows into page-locked memory in 12 threads, and copy them in 2 others."""
    builder = PipelineBuilder().add_source(endless_index_batches(work))
    builder.pipe(_PinnedGather(work), concurrency=GATHER_THREADS, output_order="input", max_failures=0)
    builder.pipe(_DeviceCopy(), concurrency=COPY_THREADS, output_order="input", max_failures=0)
    running_pipeline = builder.add_sink(4).build(num_threads=GATHER_THREADS + COPY_THREADS + 1)
    running_pipeline.start()
    return split_into_epochs(work, _record_streams(iter(running_pipeline.get_iterator())))


class _PinnedGather:
    """Gathers rows into page-locked memory. The allocator of torch reuses this memory for later batches."""

    def __init__(self, work: Workload) -> None:
        self._rows = make_array(work)
        self._dtype = torch.from_numpy(self._rows[:0]).dtype

    def __call__(self, indices: np.ndarray[Any, Any]) -> torch.Tensor:
        batch = torch.empty((len(indices), *self._rows.shape[1:]), dtype=self._dtype, pin_memory=True)
        np.take(self._rows, indices, axis=0, out=batch.numpy(), mode="clip")
        return batch


class _DeviceCopy:
    """Copies a batch on the stream of the calling thread, and waits for the copy."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        stream = getattr(self._local, "stream", None) or self._open_stream()
        with torch.cuda.stream(stream):
            copied = batch.to("cuda", non_blocking=True)
        stream.synchronize()
        return copied

    def _open_stream(self) -> Any:
        self._local.stream = torch.cuda.Stream()
        return self._local.stream


def _record_streams(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield batches after telling torch which stream uses them, so their memory stays valid."""
    for batch in batches:
        batch.record_stream(torch.cuda.current_stream())
        yield batch
