"""Meter of the rows per second of padded batches, and of the share of padding.

Batches differ in their number of rows, so the meter counts the rows of each batch. The warm-up runs one whole epoch and
measures its share of padding: the share of values that are 0. All samples report this share. The samples measure rows
per second in other epochs. Some loaders fill a buffer before the first batch of an epoch. Therefore a sample does not
start an epoch, but continues where the previous sample stopped. The option "time_factor" multiplies the length of a
sample.
"""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    start_epoch, padding = contender(work), list[float]()
    seconds = settings.seconds * float(work.options.get("time_factor", 1.0))

    def warm_up() -> None:
        padding.append(_padding_share(start_epoch()))

    batches = _endless(start_epoch)

    def sample() -> ColumnValues:
        if not padding:
            warm_up()
        return {"rows": _rows_per_second(batches, seconds), "padding": padding[0] * 100}

    return Sampler(warm_up, sample)


def _padding_share(batches: Any) -> float:
    """Return the share of values in all batches that are padding."""
    elements, values = 0, 0
    for batch in batches:
        array = np.asarray(batch)
        elements += array.size
        values += int(np.count_nonzero(array))
    return 1 - values / elements


def _endless(start_epoch: StartEpoch) -> Iterator[Any]:
    """Yield the batches of all epochs."""
    while True:
        yield from start_epoch()


def _rows_per_second(batches: Iterator[Any], seconds: float) -> float:
    """Take batches for at least `seconds`, and return the rows per second.

    The first batch does not count: the loader may have made it before the clock starts.
    """
    next(batches)
    rows, start = 0, perf_counter()
    for batch in batches:
        rows += int(batch.shape[0])
        if (now := perf_counter()) >= start + seconds:
            return rows / (now - start)
    raise AssertionError("the epochs never end")
