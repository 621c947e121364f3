"""DALI with an external source."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from forebay.measure.bench.contenders.gpu import split_into_epochs
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["external_source"]

THREADS = 4  # DALI's own threads, which only pass batches on
DTYPES = {"uint8": types.UINT8, "float32": types.FLOAT}


def external_source(work: Workload) -> StartEpoch:
    """Gather whole batches with NumPy, in worker processes if requested; DALI copies them."""
    workers = int(work.options.get("workers", 0))
    # DALI forks the workers. A process must not fork after it has used CUDA.
    options = {"py_num_workers": workers, "py_start_method": "fork"} if workers else {}
    define = pipeline_def(_graph)
    pipeline = define(work, workers, batch_size=work.batch, num_threads=THREADS, device_id=0, **options)
    if workers:
        pipeline.start_py_workers()
    return split_into_epochs(work, _batches(DALIGenericIterator([pipeline], ["rows"])))


class DaliBatchSource:
    """Returns the batch of any iteration; the worker processes call it in any order."""

    def __init__(self, work: Workload, workers: int) -> None:
        self._rows, self._work, self._workers = make_array(work), work, workers

    def __call__(self, iteration: int) -> Any:
        epoch, position = divmod(iteration, self._work.batches)
        start = position * self._work.batch
        indices = _order(epoch, self._work.rows)[start : start + self._work.batch]
        # A worker needs a list, and copies each of its rows directly into shared memory.
        return [self._rows[row] for row in indices] if self._workers else self._rows[indices]


@lru_cache(maxsize=2)
def _order(epoch: int, rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(epoch).permutation(rows)


def _graph(work: Workload, workers: int) -> Any:
    prefetch = {"parallel": True, "prefetch_queue_depth": workers} if workers else {}
    options = {"batch": True, "dtype": DTYPES[work.dtype], "ndim": len(work.shape), **prefetch}
    return fn.external_source(source=DaliBatchSource(work, workers), **options).gpu()


def _batches(iterator: Any) -> Iterator[Any]:
    for (outputs,) in iterator:
        yield outputs["rows"]
