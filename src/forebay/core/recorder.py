"""Spans and counters: how long each stage worked, how long the consumer waited.

A `Recorder` adds up; a capture is what it held, as plain values with a version, so that it can be written to a file
and read on another machine.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

__all__ = ["CAPTURE_VERSION", "Recorder", "Total"]

CAPTURE_VERSION = 1


@dataclass(slots=True)
class Total:
    """All spans of one stage together."""

    seconds: float = 0.0
    count: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class Recorder:
    """Adds spans up by stage; safe from any thread, and cheap enough to call once a group."""

    _totals: dict[str, Total] = field(default_factory=lambda: defaultdict(Total))
    _notes: dict[str, tuple[str, str]] = field(default_factory=dict)
    _counts: dict[str, Callable[[], dict[str, int]]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def add(self, stage: str, seconds: float = 0.0, *, count: int = 1, nbytes: int = 0) -> None:
        with self._lock:
            total = self._totals[stage]
            total.seconds += seconds
            total.count += count
            total.nbytes += nbytes

    def note(self, name: str, choice: str, why: str) -> None:
        """Something that turned out otherwise than planned, for `explain()`."""
        with self._lock:
            self._notes[name] = (choice, why)

    def watch(self, name: str, counts: Callable[[], dict[str, int]]) -> None:
        """Somebody who counts by himself, and is asked whenever a capture is taken."""
        self._counts[name] = counts

    def capture(self) -> dict[str, Any]:
        """Everything so far, as plain values."""
        with self._lock:
            stages = {
                stage: {"seconds": total.seconds, "count": total.count, "nbytes": total.nbytes}
                for stage, total in self._totals.items()
            }
            notes = {name: list(note) for name, note in self._notes.items()}
        counts = {name: asked() for name, asked in self._counts.items()}
        return {"version": CAPTURE_VERSION, "stages": stages, "notes": notes, "counts": counts}
