"""Servers: resources that process batches, such as a disk, a link or workers.

The simulation has no event queue. A server processes the batches of a step in the order of their arrival, and all of
them before the batches of the next step. So it computes when a batch ends from the ends of earlier batches: with
Lindley's recursion for one channel, and with the recursion of Kiefer and Wolfowitz for several channels. Therefore, the
simulation of a thousand hosts needs only a few arrays.
"""

from dataclasses import dataclass, field
from heapq import heapreplace

import numpy as np

from forebay.core.spec import Array

__all__ = ["Server"]


@dataclass(slots=True)
class Server:
    """Several equal servers, called copies. Each copy serves the same number of consecutive ranks."""

    name: str
    copies: int
    channels: int = 1  # batches that one copy processes at the same time
    busy_seconds: float = field(default=0.0, init=False)  # sum over all channels
    _free_at: Array = field(init=False)  # one channel: when each copy is free
    _heaps: list[list[float]] = field(init=False)  # several channels: when each channel of each copy is free

    def __post_init__(self) -> None:
        self._free_at = np.zeros((self.copies, 1))
        self._heaps = [[0.0] * self.channels for _ in range(self.copies)] if self.channels > 1 else []

    @property
    def total_channels(self) -> int:
        return self.copies * self.channels

    def serve(self, ready: Array, seconds: Array) -> Array:
        """Return the time at which each batch is finished, in the order of the ranks.

        `ready` contains the time at which each rank's batch arrives, and `seconds` how long its processing takes.
        """
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
        """Return when each batch ends. The arrays have one row per copy, sorted by arrival."""
        if self.channels == 1:
            return self._serve_with_one_channel(arrivals, services)
        rows = zip(self._heaps, arrivals.tolist(), services.tolist(), strict=True)
        return np.array([_serve_with_channels(heap, *row) for heap, *row in rows])

    def _serve_with_one_channel(self, arrivals: Array, services: Array) -> Array:
        """Start each batch when it has arrived and the previous batch has ended."""
        # Lindley: with the cumulated services S, end[i] = S[i] + max(free_at, arrival[j] - S[j - 1] for all j <= i).
        cumulated = np.cumsum(services, axis=1)
        delays = np.maximum.accumulate(np.maximum(arrivals - (cumulated - services), self._free_at), axis=1)
        ends: Array = cumulated + delays
        self._free_at = ends[:, -1:]
        return ends


def _serve_with_channels(heap: list[float], arrivals: list[float], services: list[float]) -> list[float]:
    """Assign each batch to the channel that is free first; return when batches end.

    The heap contains the time at which each channel is free.
    """
    ends = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, heap[0]) + service
        heapreplace(heap, end)
        ends.append(end)
    return ends
