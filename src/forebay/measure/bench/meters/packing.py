"""Meter of packing: texts per second, fill, and time to the first batch.

Every measurement makes a new loader, because packing is a part of the work. The rate counts batches after the first
one. A loader yields dicts with `segment_ids`: 1, 2, ... for the texts of a row, and 0 for padding.
"""

from time import perf_counter
from typing import Any

import numpy as np

from forebay.measure.bench.contenders import ContenderFunction
from forebay.measure.bench.meters import ColumnValues, RunSettings, Sampler
from forebay.measure.bench.model import Workload

__all__ = ["prepare"]


def prepare(contender: ContenderFunction, work: Workload, settings: RunSettings) -> Sampler:
    def sample() -> ColumnValues:
        start = perf_counter()
        epoch = contender(work)()
        batches = iter(epoch)
        next(batches)
        arrived = perf_counter()
        texts, tokens, places = _count(batches, arrived + settings.seconds)
        seconds = perf_counter() - arrived
        close = getattr(epoch, "close", None)
        if close:
            close()
        return {"texts": texts / seconds, "fill": tokens / max(1, places), "first": (arrived - start) * 1e3}

    return Sampler(lambda: None, sample)


def _count(batches: Any, deadline: float) -> tuple[int, int, int]:
    """Count texts, tokens and places until the deadline, and return the three numbers.

    A place has a token or padding. The last batch counts, although it may arrive after the deadline.
    """
    texts = tokens = places = 0
    for batch in batches:
        segment_ids = np.asarray(batch["segment_ids"])
        texts += int(segment_ids.max(axis=1).sum())
        tokens += int(np.count_nonzero(segment_ids))
        places += segment_ids.size
        if perf_counter() >= deadline:
            break
    return texts, tokens, places
