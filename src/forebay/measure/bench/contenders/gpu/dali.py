"""DALI's external source: NumPy gathers whole batches, in worker processes where asked, and DALI moves them."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from forebay.measure.bench.contenders.gpu import epochs_of
from forebay.measure.bench.data import array
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

THREADS = 4  # of DALI's own, which only hand batches on
DTYPES = {"uint8": types.UINT8, "float32": types.FLOAT}


class Batches:
    """The batch of any iteration, as worker processes must be able to ask for it."""

    def __init__(self, work: Work, workers: int) -> None:
        self._rows, self._work, self._workers = array(work), work, workers

    def __call__(self, iteration: int) -> Any:
        epoch, place = divmod(iteration, self._work.batches)
        start = place * self._work.batch
        indices = _order(epoch, self._work.rows)[start : start + self._work.batch]
        # A worker wants a list, and copies each row of it straight into the memory it shares.
        return [self._rows[row] for row in indices] if self._workers else self._rows[indices]


@lru_cache(maxsize=2)
def _order(epoch: int, rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(epoch).permutation(rows)


def epochs(work: Work) -> StartEpoch:
    workers = int(work.options.get("workers", 0))
    # Workers are forked, and must be before CUDA is used.
    running = {"py_num_workers": workers, "py_start_method": "fork"} if workers else {}
    define = pipeline_def(_graph)
    pipeline = define(work, workers, batch_size=work.batch, num_threads=THREADS, device_id=0, **running)
    if workers:
        pipeline.start_py_workers()
    return epochs_of(work, _batches(DALIGenericIterator([pipeline], ["rows"])))


def _graph(work: Work, workers: int) -> Any:
    ahead = {"parallel": True, "prefetch_queue_depth": workers} if workers else {}
    options = {"batch": True, "dtype": DTYPES[work.dtype], "ndim": len(work.shape), **ahead}
    return fn.external_source(source=Batches(work, workers), **options).gpu()


def _batches(iterator: Any) -> Iterator[Any]:
    for (outputs,) in iterator:
        yield outputs["rows"]
