"""The baseline of most GPU cases: copies of page-locked memory without a loader."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.measure.bench.data import make_array
from forebay.measure.bench.dma_peak import DmaCopies
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["dma_copies"]

BLOCK_NBYTES = 256 << 20  # 256 MiB for each copy, rounded down to whole rows


def dma_copies(work: Workload) -> StartEpoch:
    """Copy the rows to the device in blocks of 256 MiB, without a shuffle."""
    rows = make_array(work)
    copies, block_rows = DmaCopies(rows), min(len(rows), BLOCK_NBYTES // rows[0].nbytes)

    def download(address: int) -> np.ndarray[Any, Any]:
        out = np.empty_like(rows[:block_rows])
        copies.download(address, out)
        return out

    def epoch() -> Iterator[DeviceBlock]:
        for address in copies.copy_blocks(rows[:block_rows].nbytes, len(rows) // block_rows):
            yield DeviceBlock(partial(download, address))

    return epoch


@dataclass(frozen=True, slots=True)
class DeviceBlock:
    """A block of rows on the device. `download()` copies it to the host."""

    download: Callable[[], np.ndarray[Any, Any]]
