"""A station serves batches, one a server at a time: a disk, a link, a switch, a pool of workers.

Events are not kept in one queue. A station serves the batches of a step in the order in which they arrive, and one
step's after the last step's, so that when it is done with one follows from when it was done with those before
(Lindley's recursion, for several servers Kiefer and Wolfowitz's). A thousand hosts are then a few arrays.
"""

from dataclasses import dataclass, field
from heapq import heapreplace

import numpy as np

from forebay.core.spec import Array

__all__ = ["Station"]


@dataclass(slots=True)
class Station:
    """So many like stations side by side, each for an equal run of ranks."""

    name: str
    groups: int
    servers: int = 1
    busy_seconds: float = field(default=0.0, init=False)  # of all servers
    _free: Array = field(init=False)
    _heaps: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self._free = np.zeros((self.groups, 1))
        self._heaps = [[0.0] * self.servers for _ in range(self.groups)] if self.servers > 1 else []

    @property
    def all_servers(self) -> int:
        return self.groups * self.servers

    def serve(self, ready: Array, seconds: Array) -> Array:
        """When each rank's batch is done that was ready then and takes so long; ranks in order, of every group."""
        self.busy_seconds += float(seconds.sum())
        arrivals, services = ready.reshape(self.groups, -1), seconds.reshape(self.groups, -1)
        if arrivals.shape[1] == 1:
            return self._serve(arrivals, services).reshape(-1)
        order = np.argsort(arrivals, axis=1, kind="stable")
        done = np.empty_like(arrivals)
        served = self._serve(np.take_along_axis(arrivals, order, 1), np.take_along_axis(services, order, 1))
        np.put_along_axis(done, order, served, 1)
        return done.reshape(-1)

    def _serve(self, arrivals: Array, services: Array) -> Array:
        if self.servers == 1:
            return self._one_after_the_other(arrivals, services)
        rows = zip(self._heaps, arrivals.tolist(), services.tolist(), strict=True)
        return np.array([_by_the_first_free(heap, *row) for heap, *row in rows])

    def _one_after_the_other(self, arrivals: Array, services: Array) -> Array:
        """Each begins when it is there and the one before is done: the latest of all that could have held it up."""
        until = np.cumsum(services, axis=1)
        latest_start = np.maximum.accumulate(np.maximum(arrivals - (until - services), self._free), axis=1)
        done: Array = until + latest_start
        self._free = done[:, -1:]
        return done


def _by_the_first_free(heap: list[float], arrivals: list[float], services: list[float]) -> list[float]:
    done = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, heap[0]) + service
        heapreplace(heap, end)
        done.append(end)
    return done
