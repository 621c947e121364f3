"""The ledger: what hooks saw, in the order it ended. Cheap to write to, from any thread."""

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.source_lines import Lines
from forebay.doctor.model.events import Event, Kind

__all__ = ["AT_ONCE", "MOST_EVENTS", "NEVER", "Again", "Ledger", "Site"]

MOST_EVENTS = 1_000_000  # some 200 MB; a script that fills this has been understood long before

Site = tuple[str, str, int]  # kind, api, line
Again = tuple[int, int]  # when to tell of a site again: once it was seen so often, or at this time
AT_ONCE: Again = (0, 0)
NEVER: Again = (1 << 62, 1 << 62)


class _Seen:
    """How often a site was seen, and when to tell of it."""

    __slots__ = ("count", "next_count", "next_time")

    def __init__(self) -> None:
        self.count = 0
        self.next_count, self.next_time = AT_ONCE


class Ledger:
    """Takes events. A hook that was called from inside another one writes nothing: the outermost call is the user's."""

    def __init__(self, *, told: Callable[[Site, int, int], Again] = lambda site, count, end: NEVER) -> None:
        self.lines = Lines()
        self.notes: list[str] = []  # what could not be watched, in words
        self.on = True
        self.timed: Site | None = None  # what ends a step, while steps are timed and nothing else is wanted
        self._passing = self._entered = 0  # calls, while steps are timed: to pass over, and entered since the last step
        self.resting_until = 0  # when hooks may enter again; zero where they may
        self._events: list[tuple[Any, ...]] = []
        self._seen: dict[Site, _Seen] = {}
        self._told = told
        self._inside: set[int] = set()  # threads in which a hook goes on; found faster than what is a thread's own

    @property
    def events(self) -> list[Event]:
        return [Event._make(event) for event in self._events]

    @property
    def written(self) -> int:
        """How many events there are."""
        return len(self._events)

    def count(self, site: Site) -> int:
        """How often a site was seen."""
        return self._seen[site].count if site in self._seen else 0

    def note(self, told: str) -> None:
        """What could not be watched, said once."""
        if told not in self.notes:
            self.notes.append(told)

    def failed(self, api: str, error: Exception) -> None:
        """What goes wrong in a hook is never the script's trouble."""
        self.note(f"{api} is seen in part only: {type(error).__name__}: {error}")

    def is_open(self) -> bool:
        """Whether a hook could enter: asked by those in which what is called is to be seen too."""
        if not self.on or get_ident() in self._inside or (self.timed is not None and self._passes()):
            return False
        return not self.resting_until or self._is_rested()

    def enter(self) -> bool:
        """Whether the calling hook is the outermost on its thread, and something is being watched; then `leave`."""
        thread = get_ident()
        if thread in self._inside or not self.on:
            return False
        if self.resting_until and not self._is_rested():
            return False
        if self.timed is not None:
            if self._passes():
                return False
            self._entered += 1
        self._inside.add(thread)
        return True

    def leave(self) -> None:
        self._inside.discard(get_ident())

    def pass_steps(self, steps: int) -> int:
        """Called as a timed step ends: let hooks stay out until so many more have ended; how many there will be.

        What marks a step without entering is heard of each time.
        """
        calls, self._entered = self._entered, 0
        self._passing = (steps - 1) * calls
        return steps if calls else 1

    def tell_of_all(self) -> None:
        """From the next event on, whatever was agreed before."""
        for seen in [*self._seen.values()]:
            seen.next_count, seen.next_time = AT_ONCE

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
        self.write(kind, api, self.lines.here(depth + 1) if line is None else line, start, end, nbytes, detail)

    def write(
        self,
        kind: str,
        api: str,
        line: int,
        start: int,
        end: int,
        nbytes: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """The same, of which everything is known already: called often, so it is called plainly."""
        events = self._events
        if len(events) < MOST_EVENTS:
            events.append((kind, api, line, get_ident(), start, end, nbytes, detail))
        site = (kind, api, line)
        seen = self._seen.get(site)
        if seen is None:
            seen = self._seen[site] = _Seen()
        seen.count += 1
        if seen.count >= seen.next_count or end >= seen.next_time:
            seen.next_count, seen.next_time = self._told(site, seen.count, end)

    def _passes(self) -> bool:
        if self._passing <= 0:
            return False
        self._passing -= 1
        return True

    def _is_rested(self) -> bool:
        if perf_counter_ns() < self.resting_until:
            return False
        self.resting_until = 0
        return True
