"""The ledger: what hooks saw, in the order it ended. Cheap to write to, from any thread."""

import threading
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.lines import Lines
from forebay.doctor.events import Event, Kind

__all__ = ["MOST_EVENTS", "Ledger"]

MOST_EVENTS = 1_000_000  # some 200 MB; a script that fills this has been understood long before

Site = tuple[str, str, int]  # kind, api, line


class _Thread(threading.local):
    """Of each thread, whether a hook goes on there."""

    inside = False


class Ledger:
    """Takes events. A hook that was called from inside another one writes nothing: the outermost call is the user's."""

    def __init__(self, *, told: Callable[[Site, int, int], None] = lambda site, count, end: None) -> None:
        self.lines = Lines()
        self.notes: list[str] = []  # what could not be watched, in words
        self.on = True
        self.counts: dict[Site, int] = {}
        self._events: list[tuple[Any, ...]] = []
        self._told = told
        self._thread = _Thread()

    @property
    def events(self) -> list[Event]:
        return [Event._make(event) for event in self._events]

    def note(self, told: str) -> None:
        """What could not be watched, said once."""
        if told not in self.notes:
            self.notes.append(told)

    def enter(self) -> bool:
        """Whether the calling hook is the outermost on its thread, and something is being watched; then `leave`."""
        thread = self._thread
        if thread.inside or not self.on:
            return False
        thread.inside = True
        return True

    def leave(self) -> None:
        self._thread.inside = False

    def add(
        self,
        kind: Kind,
        api: str,
        start: int,
        *,
        end: int | None = None,
        nbytes: int = 0,
        detail: dict[str, Any] | None = None,
        line: int | None = None,
        depth: int = 1,
    ) -> None:
        """Write down what began at `start`; the line is that of the caller `depth` frames above."""
        end = end or perf_counter_ns()
        if line is None:
            line = self.lines.here(depth + 1)
        site = (kind, api, line)
        count = self.counts[site] = self.counts.get(site, 0) + 1
        events = self._events
        if len(events) < MOST_EVENTS:
            events.append((kind, api, line, get_ident(), start, end, nbytes, detail))
        self._told(site, count, end)
