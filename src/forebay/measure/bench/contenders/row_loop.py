"""The floor for generators: a plain loop that writes each row into a fresh array."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from forebay.measure.bench.data import generator_rows
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]


def epochs(work: Work) -> StartEpoch:
    def epoch() -> Iterator[np.ndarray[Any, Any]]:
        rows = generator_rows(work)
        for start in range(0, work.rows, work.batch):
            out = np.empty((min(work.batch, work.rows - start), *work.shape), work.dtype)
            for place, row in enumerate(islice(rows, len(out))):
                out[place] = row
            yield out

    return epoch
