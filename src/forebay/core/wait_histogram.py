"""A histogram of the times for which a training loop waits for batches.

The histogram has a fixed size: 16 buckets for each power of two of seconds, from 1 us to 17 minutes. So the loop adds a
time in less than a microsecond, and a percentile is at most 6.25 % too high. `WaitCounts` computes percentiles.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

__all__ = ["WaitCounts", "WaitHistogram", "sum_waits"]

SUB_BUCKETS = 16  # buckets for each power of two
MIN_EXPONENT = -20  # times shorter than 2**-20 s (0.95 us) count as 0
OCTAVES = 30  # powers of two with buckets; longer times than 2**10 s count in the last bucket
PENDING_WAITS = 1024  # waits that `add` collects before NumPy counts them


class WaitHistogram:
    """Counts waits in buckets.

    One thread at a time adds waits; any thread may call `counts`. `add` only appends to a list. NumPy counts the listed
    waits when there are a thousand of them, which takes 0.1 us per wait.
    """

    __slots__ = ("_buckets", "_lock", "_max_seconds", "_pending", "_seconds")

    def __init__(self) -> None:
        self._buckets = np.zeros(OCTAVES * SUB_BUCKETS + 1, np.int64)  # bucket 0 counts waits below 2**MIN_EXPONENT s
        self._pending: list[float] = []  # waits that are not counted yet
        self._seconds = self._max_seconds = 0.0
        self._lock = Lock()

    def add(self, seconds: float) -> None:
        """Count a batch for which the loop waited this long."""
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= PENDING_WAITS:
            self._count_pending()

    def counts(self, batches: int) -> "WaitCounts":
        """Return the counts so far.

        `batches` is the number of all batches. If `batches` exceeds the calls of `add`, the loop did not wait for the
        other batches.
        """
        self._count_pending()
        with self._lock:
            short, *buckets = self._buckets.tolist()
            ready = max(0, batches - short - sum(buckets)) + short
            return WaitCounts(tuple(buckets), ready, self._seconds, self._max_seconds)

    def _count_pending(self) -> None:
        with self._lock:
            count = len(self._pending)  # another thread may append more waits meanwhile
            if count == 0:
                return
            waits = np.array(self._pending[:count])
            del self._pending[:count]
            self._seconds += float(waits.sum())
            self._max_seconds = max(self._max_seconds, float(waits.max()))
            mantissas, exponents = np.frexp(waits)  # mantissas are in [0.5, 1)
            parts = (mantissas * 2 * SUB_BUCKETS).astype(np.int64) - SUB_BUCKETS
            numbers = (exponents - 1 - MIN_EXPONENT) * SUB_BUCKETS + parts
            numbers = np.where(waits > 0, numbers, -1).clip(-1, OCTAVES * SUB_BUCKETS - 1) + 1
            self._buckets += np.bincount(numbers, minlength=len(self._buckets))


@dataclass(frozen=True, slots=True)
class WaitCounts:
    """The counts of a `WaitHistogram`, until one moment, or between two moments."""

    buckets: tuple[int, ...]  # number of batches in each bucket
    ready: int  # number of batches for which the loop waited less than 2**MIN_EXPONENT s
    seconds: float  # sum of all waits
    max_seconds: float

    @property
    def batches(self) -> int:
        return self.ready + sum(self.buckets)

    def since(self, earlier: "WaitCounts") -> "WaitCounts":
        """Return the counts since an earlier moment.

        `max_seconds` of the result is not exact, because buckets store no exact times. It is the upper bound of the
        bucket of the longest wait.
        """
        buckets = tuple(now - before for now, before in zip(self.buckets, earlier.buckets, strict=True))
        highest = max((number for number, count in enumerate(buckets) if count), default=None)
        max_seconds = 0.0 if highest is None else min(upper_bound(highest), self.max_seconds)
        return WaitCounts(buckets, self.ready - earlier.ready, self.seconds - earlier.seconds, max_seconds)

    def percentiles(self, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[float]:
        """Return for each share the wait (seconds) that this share of batches does not exceed."""
        targets = [max(1, math.ceil(share * self.batches)) for share in shares]
        return [self._nth(target) for target in targets]

    def cumulative(self) -> list[tuple[float, int]]:
        """Return (seconds, batches) for each power of two.

        `batches` is the number of batches for which the loop waited at most `seconds`.
        """
        found, total = [(2.0**MIN_EXPONENT, self.ready)], self.ready
        for octave in range(OCTAVES):
            total += sum(self.buckets[octave * SUB_BUCKETS : (octave + 1) * SUB_BUCKETS])
            found.append((2.0 ** (MIN_EXPONENT + octave + 1), total))
        return found

    def _nth(self, number: int) -> float:
        """Return the wait (seconds) of the batch with the `number`-th shortest wait."""
        total = self.ready
        if total >= number or not self.batches:
            return 0.0
        for bucket, count in enumerate(self.buckets):
            total += count
            if total >= number:
                return min(upper_bound(bucket), self.max_seconds)
        return self.max_seconds


def sum_waits(parts: Sequence[WaitCounts]) -> WaitCounts:
    """Return the counts of several histograms as one."""
    buckets = tuple(map(sum, zip(*(part.buckets for part in parts), strict=True)))
    return WaitCounts(
        buckets,
        sum(part.ready for part in parts),
        sum(part.seconds for part in parts),
        max(part.max_seconds for part in parts),
    )


def upper_bound(bucket: int) -> float:
    """Return the wait in seconds at which a bucket ends."""
    octave, part = divmod(bucket, SUB_BUCKETS)
    return float(2.0 ** (MIN_EXPONENT + octave) * (1 + (part + 1) / SUB_BUCKETS))
