"""A server processes batches one at a time per channel: a disk, a link, a switch, a pool of workers.

The simulation has no event queue. A server processes the batches of a step in their order of arrival, and the batches
of one step after those of the step before. Therefore the end of each batch follows from the ends of earlier batches:
by Lindley's recursion for one channel, by that of Kiefer and Wolfowitz for several. A thousand hosts then need only a
few arrays.
"""

from dataclasses import dataclass, field
from heapq import heapreplace

import numpy as np

from forebay.core.spec import Array

__all__ = ["Server"]


@dataclass(slots=True)
class Server:
    """Several equal servers side by side; each one serves an equal number of consecutive ranks."""

    name: str
    copies: int
    channels: int = 1  # batches that one copy processes at the same time
    busy_seconds: float = field(default=0.0, init=False)  # sum over all channels
    _free_at: Array = field(init=False)
    _heaps: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self._free_at = np.zeros((self.copies, 1))
        self._heaps = [[0.0] * self.channels for _ in range(self.copies)] if self.channels > 1 else []

    @property
    def total_channels(self) -> int:
        return self.copies * self.channels

    def serve(self, ready: Array, seconds: Array) -> Array:
        """Return when each batch ends, given when it is ready and how long it takes; one batch per rank, in order."""
        self.busy_seconds += float(seconds.sum())
        arrivals, services = ready.reshape(self.copies, -1), seconds.reshape(self.copies, -1)
        if arrivals.shape[1] == 1:
            return self._serve_sorted(arrivals, services).reshape(-1)
        order = np.argsort(arrivals, axis=1, kind="stable")
        ends = np.empty_like(arrivals)
        served = self._serve_sorted(np.take_along_axis(arrivals, order, 1), np.take_along_axis(services, order, 1))
        np.put_along_axis(ends, order, served, 1)
        return ends.reshape(-1)

    def _serve_sorted(self, arrivals: Array, services: Array) -> Array:
        if self.channels == 1:
            return self._serve_with_one_channel(arrivals, services)
        rows = zip(self._heaps, arrivals.tolist(), services.tolist(), strict=True)
        return np.array([_serve_with_channels(heap, *row) for heap, *row in rows])

    def _serve_with_one_channel(self, arrivals: Array, services: Array) -> Array:
        """Start each batch when it has arrived and the one before has ended."""
        total_services = np.cumsum(services, axis=1)
        delays = np.maximum.accumulate(np.maximum(arrivals - (total_services - services), self._free_at), axis=1)
        ends: Array = total_services + delays
        self._free_at = ends[:, -1:]
        return ends


def _serve_with_channels(heap: list[float], arrivals: list[float], services: list[float]) -> list[float]:
    """Give each batch to the channel that is free first; the heap contains when each channel is free."""
    ends = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, heap[0]) + service
        heapreplace(heap, end)
        ends.append(end)
    return ends
