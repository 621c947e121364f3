"""Endless delivery of batches to a device, measured in intervals of time.

The epochs of a loader follow each other without a gap, and each interval continues where the last one stopped. The
clock stops when the device has processed the last batch, so a batch counts only after its arrival. The first batch is
copied to the host and compared with the source, row by row. Most consumers sum all batches on the device, and the sum
of each epoch must equal the sum of the source. With the option "comparable" set to False, the rows are not those of
`make_array`, and only the shape of the first batch is checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from forebay.measure.bench.consumers import Consumer
from forebay.measure.bench.data import open_array
from forebay.measure.bench.model import StartEpoch, Workload
from forebay.measure.bench.proc_stats import CpuClock
from forebay.measure.bench.row_ids import WrongRowsError, check_rows

__all__ = ["DeliveredBatches", "Delivery"]

# Before each interval, the consumer takes batches for this share of the interval. This time is the lead. Its batches do
# not count, because the loader may have prefetched them.
LEAD_SHARE = 0.5
MODULUS = 1 << 32  # frameworks sum in different integer types; the lowest 32 bits are the same in all of them


@dataclass(frozen=True, slots=True)
class DeliveredBatches:
    """The batches that arrived in an interval, and how many host cores were busy."""

    batches: int
    nbytes: int
    seconds: float
    cores: float  # mean number of busy cores during the lead and the interval

    @property
    def gigabytes_per_second(self) -> float:
        return self.nbytes / self.seconds / 1e9


class Delivery:
    """Delivers the batches of one loader to one consumer."""

    def __init__(self, start_epoch: StartEpoch, consumer: Consumer, work: Workload) -> None:
        self._consumer, self._work = consumer, work
        self._comparable = work.options.get("comparable", True)
        # Whether an epoch has every row of the source once.
        self._has_all_rows = self._comparable and not work.options.get("chooses_rows")
        self._batches = self._endless_batches(start_epoch)
        self.batch_nbytes = 0  # known after the first batch

    def take_first(self) -> Any:
        """Take the first batch, check its rows, and return it."""
        batch = next(self._batches)
        self._consumer.take(batch)
        rows = self._consumer.download(batch)
        if self._comparable:
            check_rows(rows, open_array(self._work), may_repeat=not self._has_all_rows)
        elif len(rows) != self._work.batch:
            raise WrongRowsError(f"the first batch has {len(rows)} rows instead of {self._work.batch}")
        self.batch_nbytes = rows.nbytes
        return batch

    def run(self, seconds: float) -> int:
        """Consume batches for `seconds`, wait for the device, and return the number of batches."""
        batches, totals = self._consume_until(perf_counter() + seconds)
        self._check(totals)
        return batches

    def measure(self, seconds: float) -> DeliveredBatches:
        """Measure the batches that arrive in this many seconds.

        First consume the batches that the loader has prefetched while other entries were measured. Then start the clock
        at once, because the loader would prefetch again in a gap.
        """
        clock = CpuClock()
        _, earlier_totals = self._consume_until(perf_counter() + seconds * LEAD_SHARE)
        start = perf_counter()
        batches, totals = self._consume_until(start + seconds)
        elapsed = perf_counter() - start
        cores = clock.stop()
        self._check(earlier_totals + totals)
        return DeliveredBatches(batches, batches * self.batch_nbytes, elapsed, cores)

    def _consume_until(self, deadline: float) -> tuple[int, list[int]]:
        """Consume batches until the deadline and wait for the device.

        Return the number of batches, and the sum of each epoch that ended.
        """
        return self._take_until(deadline), self._consumer.wait()

    def _take_until(self, deadline: float) -> int:
        take, count = self._consumer.take, 0
        for batch in self._batches:
            take(batch)
            count += 1
            if perf_counter() >= deadline:
                break
        return count

    def _endless_batches(self, start_epoch: StartEpoch) -> Iterator[Any]:
        while True:
            yield from start_epoch()
            self._consumer.end_epoch()

    def _check(self, totals: list[int]) -> None:
        """Raise `WrongRowsError` if the sum of an epoch differs from the sum of the source.

        Do nothing if an epoch need not have every row of the source once.
        """
        for total in totals if self._has_all_rows else ():
            if (total - self._expected_total) % MODULUS:
                raise WrongRowsError(
                    f"an epoch has the sum {total} on the device, but {self._expected_total} in the source"
                )

    @cached_property
    def _expected_total(self) -> int:
        return self._consumer.expected_total(open_array(self._work))
