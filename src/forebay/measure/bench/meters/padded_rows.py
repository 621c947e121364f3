"""Meter of the rows per second of padded batches, and of the share of padding.

Batches differ in their number of rows, so the meter counts the rows of each batch. The share of padding is that of the
first epoch, which the meter takes during the warm-up. The value 0 is padding. The option "time_factor" makes a sample
this many times as long as usual, for loaders that fill a buffer before the first batch of an epoch.
"""

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

    def sample() -> ColumnValues:
        if not padding:
            warm_up()
        return {"rows": _rows_per_second(start_epoch, seconds), "padding": padding[0] * 100}

    return Sampler(warm_up, sample)


def _padding_share(batches: Any) -> float:
    elements, values = 0, 0
    for batch in batches:
        array = np.asarray(batch)
        elements += array.size
        values += int(np.count_nonzero(array))
    return 1 - values / elements


def _rows_per_second(start_epoch: StartEpoch, seconds: float) -> float:
    rows, start = 0, perf_counter()
    while True:
        for batch in start_epoch():
            rows += int(batch.shape[0])
            if (now := perf_counter()) >= start + seconds:
                return rows / (now - start)
