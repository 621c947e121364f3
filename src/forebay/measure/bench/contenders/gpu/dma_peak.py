"""No loader at all: 256 MiB pieces of page-locked memory, in the order they lie in. All ratios are to this."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.measure.bench.data import array
from forebay.measure.bench.dma_peak import Link
from forebay.measure.bench.model import StartEpoch, Work

__all__ = ["epochs"]

PIECE_NBYTES = 256 << 20  # cut to whole rows


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that have arrived."""

    download: Callable[[], np.ndarray[Any, Any]]


def epochs(work: Work) -> StartEpoch:
    rows = array(work)
    link, piece_rows = Link(rows), min(len(rows), PIECE_NBYTES // rows[0].nbytes)

    def download(place: int) -> np.ndarray[Any, Any]:
        out = np.empty_like(rows[:piece_rows])
        link.download(place, out)
        return out

    def epoch() -> Iterator[Piece]:
        for place in link.pieces(rows[:piece_rows].nbytes, len(rows) // piece_rows):
            yield Piece(partial(download, place))

    return epoch
