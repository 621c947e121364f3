"""Time spans and counters of a running feed, for `Feed.stats()` and `Feed.explain()`.

A `Recorder` adds up the time spans of each stage, such as "gather". `Recorder.capture` returns the sums as plain values
with a version, so that a file can store them.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from forebay.core.wait_histogram import WaitCounts, WaitHistogram

__all__ = ["CAPTURE_VERSION", "Received", "Recorder", "StageTotal", "describe_received"]

CAPTURE_VERSION = 1


@dataclass(slots=True)
class StageTotal:
    """Sum of all time spans of one stage."""

    seconds: float = 0.0
    count: int = 0  # number of spans, unless `add_span` gets another count
    nbytes: int = 0  # bytes that the stage moved


@dataclass(frozen=True, slots=True)
class Received:
    """What the consumer received until one moment, or between two moments."""

    batches: int
    rows: int
    nbytes: int
    errors: int  # that the consumer got in place of a batch
    wait_seconds: float  # time in which no group of batches was ready
    waits: WaitCounts

    def since(self, earlier: "Received") -> "Received":
        """Return what the consumer received after an earlier moment."""
        return Received(
            self.batches - earlier.batches,
            self.rows - earlier.rows,
            self.nbytes - earlier.nbytes,
            self.errors - earlier.errors,
            self.wait_seconds - earlier.wait_seconds,
            self.waits.since(earlier.waits),
        )


@dataclass(slots=True)
class Recorder:
    """Adds up time spans per stage, and collects decisions and counters.

    `add_span` and `note` are thread-safe and cheap enough for one call per group of batches.
    """

    batches: int = 0  # that the consumer received
    _rows: int = 0
    _nbytes: int = 0
    _errors: int = 0
    _waits: WaitHistogram = field(default_factory=WaitHistogram)
    _totals: dict[str, StageTotal] = field(default_factory=lambda: defaultdict(StageTotal))  # stage: its total
    _notes: dict[str, tuple[str, str]] = field(default_factory=dict)  # name: choice and reason
    _counters: dict[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)  # name: reader
    _lock: Lock = field(default_factory=Lock)

    def add_span(self, stage: str, seconds: float = 0.0, *, count: int = 1, nbytes: int = 0) -> None:
        with self._lock:
            total = self._totals[stage]
            total.seconds += seconds
            total.count += count
            total.nbytes += nbytes

    def add_received(self, batches: int, rows: int, nbytes: int, wait_seconds: float) -> None:
        """Count the batches of a group, and the consumer's wait for the first of them.

        There is no wait for the other batches of the group. This method takes no lock. The caller holds one, so that
        only one thread at a time calls this method.
        """
        self.batches += batches
        self._rows += rows
        self._nbytes += nbytes
        self._waits.add(wait_seconds)

    def add_error(self) -> None:
        """Count an error that the consumer gets in place of a batch."""
        with self._lock:
            self._errors += 1

    def received(self) -> Received:
        """Return what the consumer received so far."""
        with self._lock:
            wait_seconds = self._totals["wait"].seconds if "wait" in self._totals else 0.0
            waits = self._waits.counts(self.batches)
            return Received(self.batches, self._rows, self._nbytes, self._errors, wait_seconds, waits)

    def note(self, name: str, choice: str, why: str) -> None:
        """Record a decision that the feed made after planning, for `explain()`.

        It replaces an earlier decision with the same name.
        """
        with self._lock:
            self._notes[name] = (choice, why)

    def register_counters(self, name: str, read_counters: Callable[[], dict[str, Any]]) -> None:
        """Register a function that returns counters. Each `capture` calls the function."""
        self._counters[name] = read_counters

    def capture(self) -> dict[str, Any]:
        """Return all spans, notes and counters as plain values."""
        with self._lock:
            stages = {
                stage: {"seconds": total.seconds, "count": total.count, "nbytes": total.nbytes}
                for stage, total in self._totals.items()
            }
            notes = {name: list(note) for name, note in self._notes.items()}
        counts = {name: read_counters() for name, read_counters in self._counters.items()}
        received = describe_received(self.received())
        return {"version": CAPTURE_VERSION, "received": received, "stages": stages, "notes": notes, "counts": counts}


def describe_received(received: Received) -> dict[str, Any]:
    """Return the numbers of `received` for `stats()`. The percentiles include batches without a wait."""
    p50, p95, p99 = received.waits.percentiles()
    return {
        "batches": received.batches,
        "rows": received.rows,
        "nbytes": received.nbytes,
        "errors": received.errors,
        "wait_seconds": received.wait_seconds,
        "wait_p50_seconds": p50,
        "wait_p95_seconds": p95,
        "wait_p99_seconds": p99,
        "wait_max_seconds": received.waits.max_seconds,
    }
