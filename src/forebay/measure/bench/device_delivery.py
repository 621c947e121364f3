"""Batches on their way to the device, without an end, and what their consumer saw in a stretch of time.

The loader's epochs follow each other and are never cut: a stretch goes on where the last one stopped. The clock stops
when the device has done its work on the last batch, so a batch counts when it has arrived. The first batch is brought
back and compared with the rows it is stamped as; later ones are summed on the device, and whole epochs must come to
the sum of the source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from forebay.measure.bench.consumers import Consumer
from forebay.measure.bench.data import source_array
from forebay.measure.bench.model import StartEpoch, Work
from forebay.measure.bench.proc_stats import CpuClock
from forebay.measure.bench.stamps import WrongRowsError, check_rows

__all__ = ["Delivery", "Stretch"]

LEAD = 0.5  # consumed before a stretch and not counted, as a share of it
MODULUS = 1 << 32  # frameworks add up in types of their own; all of them agree in the lowest 32 bits


@dataclass(frozen=True, slots=True)
class Stretch:
    """What arrived in some seconds, and how many cores the host was busy with."""

    batches: int
    nbytes: int
    seconds: float
    cores: float

    @property
    def gigabytes_per_second(self) -> float:
        return self.nbytes / self.seconds / 1e9


class Delivery:
    """One loader and one consumer."""

    def __init__(self, start: StartEpoch, consumer: Consumer, work: Work) -> None:
        self._consumer, self._work = consumer, work
        self._batches = self._endless(start)
        self.batch_nbytes = 0  # known from the first batch on

    def first(self) -> Any:
        """Take the first batch and see that it is what it should be."""
        batch = next(self._batches)
        self._consumer.take(batch)
        rows = self._consumer.download(batch)
        check_rows(rows, source_array(self._work))
        self.batch_nbytes = rows.nbytes
        return batch

    def run(self, seconds: float) -> int:
        """Consume for this long, and wait until the device has done so; how many batches that were."""
        batches, totals = self._consumed(perf_counter() + seconds)
        self._check(totals)
        return batches

    def measure(self, seconds: float) -> Stretch:
        """What arrives in so many seconds.

        Whatever was read ahead while others had their turn is used up before; and the clock starts at the moment that
        is done, since a loader reads ahead while anything else is done.
        """
        clock = CpuClock()
        _, before = self._consumed(perf_counter() + seconds * LEAD)
        began = perf_counter()
        batches, totals = self._consumed(began + seconds)
        took = perf_counter() - began
        cores = clock.stop()
        self._check(before + totals)
        return Stretch(batches, batches * self.batch_nbytes, took, cores)

    def _consumed(self, deadline: float) -> tuple[int, list[int]]:
        """Batches until then, and the sums of the epochs that ended; the device is done with all of them."""
        return self._consume(deadline), self._consumer.wait()

    def _consume(self, deadline: float) -> int:
        take, count = self._consumer.take, 0
        for batch in self._batches:
            take(batch)
            count += 1
            if perf_counter() >= deadline:
                break
        return count

    def _endless(self, start: StartEpoch) -> Iterator[Any]:
        while True:
            yield from start()
            self._consumer.end_epoch()

    def _check(self, totals: list[int]) -> None:
        for total in totals:
            if (total - self._expected) % MODULUS:
                raise WrongRowsError(f"an epoch sums to {total} on the device and to {self._expected} at its source")

    @cached_property
    def _expected(self) -> int:
        return self._consumer.expected_total(source_array(self._work))
