"""Readings of CPU time while steps are recorded: how many cores other threads than the loop's keep busy.

On a CPU, JAX computes in its own threads. Their CPU time shows whether they may limit a step.
"""

import time
from threading import get_ident
from typing import NamedTuple

__all__ = ["OtherThreadsClock"]

INTERVAL_NS = 10_000_000  # between two readings; a reading takes about 1 us
MAX_READINGS = 2000  # per run; they cover at least 20 seconds


class _Reading(NamedTuple):
    time: int  # nanoseconds on the clock of the events
    thread: int
    process_seconds: float  # CPU time of all threads
    thread_seconds: float  # CPU time of this thread


class OtherThreadsClock:
    """Reads the CPU time of the process and of the thread that calls `read`."""

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._next_time = 0

    def read(self, now: int) -> None:
        """Add a reading, unless the last one is recent. `now` is the present time in nanoseconds."""
        if now < self._next_time or len(self._readings) >= MAX_READINGS:
            return
        self._next_time = now + INTERVAL_NS
        self._readings.append(_Reading(now, get_ident(), time.process_time(), time.thread_time()))

    def other_cores(self, start: int, end: int) -> float | None:
        """Return how many cores the other threads kept busy from `start` to `end`.

        The thread with the most readings in this time is that of the loop. Return None if it has fewer than two.
        """
        inside = [reading for reading in self._readings if start <= reading.time <= end]
        threads = [reading.thread for reading in inside]
        loop_thread = max(threads, key=threads.count, default=0)
        of_loop = [reading for reading in inside if reading.thread == loop_thread]
        if len(of_loop) < 2:
            return None
        first, last = of_loop[0], of_loop[-1]
        process, thread = last.process_seconds - first.process_seconds, last.thread_seconds - first.thread_seconds
        return max(0.0, process - thread) * 1e9 / (last.time - first.time)
