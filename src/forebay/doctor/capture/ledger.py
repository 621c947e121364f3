"""The API ledger: events that the hooks recorded, in the order in which they ended.

Every thread of the script writes to it, so writing is cheap.
"""

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["AT_ONCE", "MAX_EVENTS", "NEVER", "Ledger", "NextReport", "SiteKey"]

MAX_EVENTS = 1_000_000  # about 200 MB; a script is understood long before it writes this many events

SiteKey = tuple[str, str, int]  # kind, API, line
NextReport = tuple[int, int]  # report a site again at this count or at this time, whichever comes first
AT_ONCE: NextReport = (0, 0)
NEVER: NextReport = (1 << 62, 1 << 62)


class _SiteCount:
    """How often events came from a site, and when to report it next."""

    __slots__ = ("count", "next_count", "next_time")

    def __init__(self) -> None:
        self.count = 0
        self.next_count, self.next_time = AT_ONCE


class Ledger:
    """Collects events. Only the outermost hook of a thread writes, because that call is the user's."""

    def __init__(self, *, on_site: Callable[[SiteKey, int, int], NextReport] = lambda site, count, end: NEVER) -> None:
        self.lines = SourceLines()
        self.notes: list[str] = []  # sentences about what could not be recorded
        self.is_on = True
        self.timed_site: SiteKey | None = None  # the site that ends a step, while only step times are recorded
        self.paused_until = 0  # nanoseconds; 0: not paused
        self._calls_to_skip = 0  # while steps are timed
        self._calls_since_step = 0  # while steps are timed
        self._events: list[tuple[Any, ...]] = []
        self._counts: dict[SiteKey, _SiteCount] = {}
        self._on_site = on_site
        self._threads_in_hook: set[int] = set()  # a set lookup is faster than threading.local

    @property
    def events(self) -> list[LedgerEvent]:
        return [LedgerEvent._make(event) for event in self._events]

    @property
    def event_count(self) -> int:
        return len(self._events)

    def count_of(self, site: SiteKey) -> int:
        """Return how many events came from a site."""
        return self._counts[site].count if site in self._counts else 0

    def note(self, text: str) -> None:
        """Add a note, once, about something that could not be recorded."""
        if text not in self.notes:
            self.notes.append(text)

    def note_failure(self, api: str, error: Exception) -> None:
        """Note an error inside a hook; the script must not see it."""
        self.note(f"{api} is recorded only in part: {type(error).__name__}: {error}")

    def can_begin(self) -> bool:
        """Whether `begin` would succeed now. For hooks that must also record nested calls."""
        if (
            not self.is_on
            or get_ident() in self._threads_in_hook
            or (self.timed_site is not None and self._skip_call())
        ):
            return False
        return not self.paused_until or self._is_pause_over()

    def begin(self) -> bool:
        """Enter a hook. True: it is the outermost of its thread and must call `end`. False: record nothing."""
        thread = get_ident()
        if thread in self._threads_in_hook or not self.is_on:
            return False
        if self.paused_until and not self._is_pause_over():
            return False
        if self.timed_site is not None:
            if self._skip_call():
                return False
            self._calls_since_step += 1
        self._threads_in_hook.add(thread)
        return True

    def end(self) -> None:
        self._threads_in_hook.discard(get_ident())

    def skip_steps(self, steps: int) -> int:
        """Skip all hooks until `steps` more steps have ended; return the steps until the next event.

        Called when a timed step ends. A step that is marked without `begin` cannot be skipped, so the result is 1.
        """
        calls, self._calls_since_step = self._calls_since_step, 0
        self._calls_to_skip = (steps - 1) * calls
        return steps if calls else 1

    def report_all_sites(self) -> None:
        """Report every site at its next event, regardless of earlier agreements."""
        for count in [*self._counts.values()]:
            count.next_count, count.next_time = AT_ONCE

    def add(
        self,
        kind: EventKind,
        api: str,
        start: int,
        *,
        end: int | None = None,
        nbytes: int = 0,
        detail: dict[str, Any] | None = None,
        line: int | None = None,
        depth: int = 1,
    ) -> None:
        """Add an event. Its line is that of the caller `depth` frames above, unless `line` is given."""
        end = end or perf_counter_ns()
        line = self.lines.current_line(depth + 1) if line is None else line
        self.write(kind, api, line, start, end, nbytes, detail=detail)

    def write(
        self,
        kind: str,
        api: str,
        line: int,
        start: int,
        end: int,
        nbytes: int = 0,
        *,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Add an event of which everything is known. Hot path."""
        events = self._events
        if len(events) < MAX_EVENTS:
            events.append((kind, api, line, get_ident(), start, end, nbytes, detail))
        site = (kind, api, line)
        count = self._counts.get(site)
        if count is None:
            count = self._counts[site] = _SiteCount()
        count.count += 1
        if count.count >= count.next_count or end >= count.next_time:
            count.next_count, count.next_time = self._on_site(site, count.count, end)

    def _skip_call(self) -> bool:
        if self._calls_to_skip <= 0:
            return False
        self._calls_to_skip -= 1
        return True

    def _is_pause_over(self) -> bool:
        if perf_counter_ns() < self.paused_until:
            return False
        self.paused_until = 0
        return True
