"""Time spans and counters of a running feed, for `Feed.stats()` and `Feed.explain()`.

A `Recorder` adds up the time spans of each stage, such as "gather". `Recorder.capture` returns the sums as plain values
with a version, so that a file can store them.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

__all__ = ["CAPTURE_VERSION", "Recorder", "StageTotal"]

CAPTURE_VERSION = 1


@dataclass(slots=True)
class StageTotal:
    """Sum of all time spans of one stage."""

    seconds: float = 0.0
    count: int = 0  # spans, or what the caller of `add_span` counts
    nbytes: int = 0  # bytes that the stage moved


@dataclass(slots=True)
class Recorder:
    """Adds up time spans per stage, and collects decisions and counters.

    `add_span` and `note` are thread-safe and cheap enough for one call per group.
    """

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

    def note(self, name: str, choice: str, why: str) -> None:
        """Record a decision that the feed made after planning, for `explain()`.

        It replaces an earlier decision with the same name.
        """
        with self._lock:
            self._notes[name] = (choice, why)

    def add_counters(self, name: str, read_counters: Callable[[], dict[str, Any]]) -> None:
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
        return {"version": CAPTURE_VERSION, "stages": stages, "notes": notes, "counts": counts}
