"""PyTorch steps on the device: matrix products with the batch, and products in the background."""

from collections import deque
from statistics import mean
from time import perf_counter, sleep
from typing import Any

import torch

from forebay.measure.bench.steps import MATRIX_SIZE

__all__ = ["BackgroundProducts", "TorchStep", "make_step"]

BACKGROUND_MATRIX_SIZE = 8192
# Products in the queue. On an H200, a product takes about 20 ms. The consumer refills the queue after each batch, so
# the device stays busy if a batch arrives at least every 80 ms.
QUEUED_PRODUCTS = 4


def make_step() -> "TorchStep":
    return TorchStep("cuda")


class TorchStep:
    """Multiplies a matrix, made of a batch's first elements, by random fp32 weights.

    The weights have a variance of 1 / MATRIX_SIZE, so repeated products keep their magnitude.
    """

    def __init__(self, device: str) -> None:
        self._weights = torch.randn(MATRIX_SIZE, MATRIX_SIZE, device=device) / MATRIX_SIZE**0.5
        self._hidden: Any = self._weights

    def run(self, batch: Any, products: int) -> None:
        hidden = batch.view(-1)[: MATRIX_SIZE * MATRIX_SIZE].view(MATRIX_SIZE, MATRIX_SIZE).float()
        for _ in range(products):
            hidden = hidden @ self._weights
        self._hidden = hidden

    def wait(self) -> None:
        if self._hidden.is_cuda:
            torch.cuda.synchronize()


class BackgroundProducts:
    """Runs large fp32 products on a separate stream, and times them with CUDA events."""

    def __init__(self) -> None:
        self._left, self._right = torch.randn(2, BACKGROUND_MATRIX_SIZE, BACKGROUND_MATRIX_SIZE, device="cuda")
        self._out = torch.empty_like(self._left)
        torch.cuda.synchronize()
        self._stream = torch.cuda.Stream()
        self._queued: deque[tuple[Any, Any]] = deque()
        self._seconds: list[float] = []

    def refill_queue(self) -> None:
        """Record the times of finished products, and queue new products."""
        self._record_finished()
        while len(self._queued) < QUEUED_PRODUCTS:
            self._enqueue()

    def stop(self) -> None:
        """Wait for the queued products.

        Their times do not count, because no batches arrive during the wait.
        """
        self._record_finished()
        self._stream.synchronize()
        self._queued.clear()

    def seconds_per_product(self) -> float:
        """Return the mean of the recorded times, and clear them."""
        seconds, self._seconds = self._seconds, []
        return mean(seconds)

    def clear_times(self) -> None:
        self._seconds = []

    def measure_without_loader(self, seconds: float) -> float:
        """Run products for `seconds` without a loader; return the mean seconds per product."""
        self.clear_times()
        deadline = perf_counter() + seconds
        while perf_counter() < deadline or not self._seconds:
            self.refill_queue()
            sleep(1e-3)
        self.stop()
        return self.seconds_per_product()

    def _enqueue(self) -> None:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            start.record()
            torch.mm(self._left, self._right, out=self._out)
            end.record()
        self._queued.append((start, end))

    def _record_finished(self) -> None:
        while self._queued and self._queued[0][1].query():
            start, end = self._queued.popleft()
            self._seconds.append(start.elapsed_time(end) / 1e3)
