"""Large fp32 products on a stream of their own, always a few ahead, each timed by the device."""

from collections import deque
from statistics import mean
from time import perf_counter, sleep
from typing import Any

import torch

__all__ = ["Products"]

EDGE = 8192
AHEAD = 4  # some 20 ms each: as long as a loader may take for a batch without the device running dry


class Products:
    """Keeps the device computing."""

    def __init__(self) -> None:
        self._left, self._right = torch.randn(2, EDGE, EDGE, device="cuda")
        self._out = torch.empty_like(self._left)
        torch.cuda.synchronize()
        self._stream = torch.cuda.Stream()
        self._queued: deque[tuple[Any, Any]] = deque()
        self._seconds: list[float] = []

    def top_up(self) -> None:
        """Note what is done, queue what is missing."""
        self._note()
        while len(self._queued) < AHEAD:
            self._queue()

    def stop(self) -> None:
        """Wait for what is queued, and forget it: nothing went on beside it."""
        self._note()
        self._stream.synchronize()
        self._queued.clear()

    def seconds_each(self) -> float:
        """The mean of those noted since the last time."""
        seconds, self._seconds = self._seconds, []
        return mean(seconds)

    def forget(self) -> None:
        self._seconds = []

    def seconds_alone(self, seconds: float) -> float:
        """The same, of some products that nothing goes on beside."""
        self.forget()
        deadline = perf_counter() + seconds
        while perf_counter() < deadline or not self._seconds:
            self.top_up()
            sleep(1e-3)
        self.stop()
        return self.seconds_each()

    def _queue(self) -> None:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            began.record()
            torch.mm(self._left, self._right, out=self._out)
            ended.record()
        self._queued.append((began, ended))

    def _note(self) -> None:
        while self._queued and self._queued[0][1].query():
            began, ended = self._queued.popleft()
            self._seconds.append(began.elapsed_time(ended) / 1e3)
