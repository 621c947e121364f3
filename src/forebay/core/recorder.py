"""Time spans and counters of a running feed, for `Feed.stats()` and `Feed.explain()`.

A `Recorder` adds up the time spans of each stage, such as "gather". `Recorder.capture` returns the sums as plain values
with a version, so that a file can store them.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from forebay.core.wait_histogram import WaitCounts, WaitHistogram, sum_waits

__all__ = ["CAPTURE_VERSION", "Received", "Recorder", "RecorderGroup", "StageTotal", "TakenGroup", "describe_received"]

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
    errors: int  # number of exceptions that the consumer got in place of a batch
    wait_seconds: float  # time for which the consumer waited for groups of batches
    waits: WaitCounts  # histogram of the waits for each batch

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


class TakenGroup:
    """Counts the batches that the consumer has taken of the current group.

    The consumer removes the batches one by one from the list `ready`. The length of this list gives the count, so
    counting takes no time per batch.
    """

    __slots__ = ("_before", "_ready", "_sizes")

    def __init__(self, sizes: tuple[int, int, int, int], ready: Sequence[Any]) -> None:
        self._sizes = sizes  # batches, rows and bytes of the group, and rows of a full batch
        self._ready = ready  # the batches that the consumer has not taken yet
        self._before = (0, 0, 0)  # batches, rows and bytes of all groups before this one

    def follow(self, previous: "TakenGroup") -> None:
        """Add the totals of the previous group, of which the consumer takes no more batches."""
        self._before = previous.totals()

    def totals(self) -> tuple[int, int, int]:
        """Return (batches, rows, bytes) that the consumer has taken of all groups."""
        batches, rows, nbytes = self._before
        group_batches, group_rows, group_nbytes, batch_rows = self._sizes
        left = len(self._ready)
        if not left:
            return batches + group_batches, rows + group_rows, nbytes + group_nbytes
        taken = group_batches - left
        taken_rows = taken * batch_rows  # only the last batch of a group may be shorter
        taken_nbytes = group_nbytes * taken_rows // group_rows if group_rows else 0
        return batches + taken, rows + taken_rows, nbytes + taken_nbytes


@dataclass(slots=True)
class Recorder:
    """Adds up the time spans of each stage, and collects decisions and counters.

    Any thread may call `add_span` and `note`. They are fast enough for one call per group of batches.
    """

    _taken: TakenGroup = field(default_factory=lambda: TakenGroup((0, 0, 0, 0), ()))
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

    @property
    def batches(self) -> int:
        """Number of batches that the consumer has received."""
        return self._taken.totals()[0]

    def begin_group(self, group: TakenGroup, wait_seconds: float) -> None:
        """Count the batches of a group while the consumer takes them.

        The consumer waited `wait_seconds` for the first batch; then all batches of the group were ready. This method
        takes no lock, because the caller holds a lock.
        """
        group.follow(self._taken)
        self._taken = group
        self._waits.add(wait_seconds)

    def end_group(self) -> None:
        """End the current group early; the consumer will not receive its remaining batches."""
        ended = TakenGroup((0, 0, 0, 0), ())
        ended.follow(self._taken)
        self._taken = ended

    def add_error(self) -> None:
        """Count an error that the consumer gets in place of a batch."""
        with self._lock:
            self._errors += 1

    def received(self) -> Received:
        """Return what the consumer has received so far."""
        with self._lock:
            wait_seconds = self._totals["wait"].seconds if "wait" in self._totals else 0.0
            batches, rows, nbytes = self._taken.totals()
            return Received(batches, rows, nbytes, self._errors, wait_seconds, self._waits.counts(batches))

    def note(self, name: str, choice: str, why: str) -> None:
        """Record a decision that the feed made after planning, for `explain()`.

        The decision replaces an earlier decision with the same name.
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


@dataclass(frozen=True, slots=True)
class RecorderGroup:
    """The recorders of several feeds, each of which delivers a part of every batch."""

    recorders: Sequence[Recorder]

    @property
    def batches(self) -> int:
        """Number of batches of which the consumer received all parts."""
        return min(recorder.batches for recorder in self.recorders)

    def received(self) -> Received:
        """Return what the consumer has received so far.

        The waits of all feeds add up, because the consumer waits for each part of a batch.
        """
        parts = [recorder.received() for recorder in self.recorders]
        return Received(
            min(part.batches for part in parts),
            sum(part.rows for part in parts),
            sum(part.nbytes for part in parts),
            sum(part.errors for part in parts),
            sum(part.wait_seconds for part in parts),
            sum_waits([part.waits for part in parts]),
        )


def describe_received(received: Received) -> dict[str, Any]:
    """Return {name: number} of `received` for `stats()`.

    The percentiles count batches without a wait as 0 seconds.
    """
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
