"""The ledger: the list of the events that hooks record.

Every recorded framework call runs `Ledger.write`, so it is a hot path.
"""

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.model.redaction import describe_error

__all__ = ["AT_NEXT_EVENT", "MAX_EVENTS", "NEVER", "Ledger", "NextReport", "SiteKey"]

MAX_EVENTS = 1_000_000  # about 200 MB; the ledger drops further events, but profiling normally ends long before

SiteKey = tuple[str, str, int]  # a call site: kind, API, index of the line
NextReport = tuple[int, int]  # event count and time (ns): at the earlier one, the ledger calls `on_site` for a site
AT_NEXT_EVENT: NextReport = (0, 0)
NEVER: NextReport = (1 << 62, 1 << 62)


class _SiteCount:
    """The number of events of a call site, and its `NextReport`."""

    __slots__ = ("count", "next_count", "next_time")

    def __init__(self) -> None:
        self.count = 0
        self.next_count, self.next_time = AT_NEXT_EVENT


class Ledger:
    """Collects events.

    A hook records between `begin` and `end`. Meanwhile, other hooks of the thread record nothing, because the framework
    makes the nested calls, not the script. The ledger reports a call site by calling `on_site(site, event count,
    time)`, which returns when to report the site next.
    """

    def __init__(self, *, on_site: Callable[[SiteKey, int, int], NextReport] = lambda site, count, end: NEVER) -> None:
        self.lines = SourceLines()
        self.notes: list[str] = []  # sentences for the report about what hooks could not record
        self.is_on = True  # False: hooks record nothing
        self.timed_site: SiteKey | None = None  # the site that ends a step; set while unprofiled steps are timed
        self.on_step: Callable[[int], None] | None = None  # if set, gets each end of `timed_site` instead of an event
        self.paused_until = 0  # nanoseconds; 0: not paused
        self._calls_to_skip = 0  # this many of the next hook calls record nothing; set while steps are timed
        self._calls_since_step = 0  # hook calls since the last step ended; counted while steps are timed
        self._events: list[tuple[Any, ...]] = []  # fields of LedgerEvent
        self._counts: dict[SiteKey, _SiteCount] = {}
        self._on_site = on_site
        self._threads_in_hook: set[int] = set()  # a set lookup is faster than threading.local

    @property
    def events(self) -> list[LedgerEvent]:
        return [LedgerEvent._make(event) for event in self._events]

    @property
    def event_count(self) -> int:
        return len(self._events)

    @property
    def last_end(self) -> int:
        """The later end (ns) of the last two events; 0 if there are fewer.

        The last event may be an upload inside a compiled call. The event of the call precedes it, but ends later.
        """
        events = self._events
        return max(events[-1][5], events[-2][5]) if len(events) > 1 else 0

    @property
    def last_span(self) -> tuple[int, int]:
        """The start and the end of the last event in nanoseconds; zeros without events."""
        return self._events[-1][4:6] if self._events else (0, 0)

    @property
    def calls_since_step(self) -> int:
        """The number of hook calls since the last step ended; 0 unless steps are timed."""
        return self._calls_since_step

    def count_of(self, site: SiteKey) -> int:
        """Return the number of events of a call site."""
        return self._counts[site].count if site in self._counts else 0

    def note(self, text: str) -> None:
        """Add a note about something that could not be recorded, unless the note exists."""
        if text not in self.notes:
            self.notes.append(text)

    def note_failure(self, api: str, error: Exception) -> None:
        """Add a note about an error in a hook, which must not reach the script."""
        self.note(f"{api} is recorded only in part: {describe_error(error)}")

    def can_begin(self) -> bool:
        """Whether `begin` would return True now.

        If the result is False, the ledger may have counted the call as skipped, so do not also call `begin`.
        """
        if (
            not self.is_on
            or get_ident() in self._threads_in_hook
            or (self.timed_site is not None and self._skip_call())
        ):
            return False
        return not self.paused_until or self._is_pause_over()

    def begin(self) -> bool:
        """Enter a hook; return whether the hook may record its call.

        If the result is True, the hook must call `end`. The result is False inside another hook of the thread, and
        while recording is off, paused or skipped.
        """
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
        """Leave a hook for which `begin` returned True."""
        self._threads_in_hook.discard(get_ident())

    def skip_steps(self, steps: int) -> int:
        """Record nothing in the next `steps - 1` steps.

        Return the number of steps until the next event. Call this when a timed step ends. To skip a step, the ledger
        skips as many hook calls as the last step made. If it made none, the ledger cannot skip steps, and returns 1.
        """
        calls, self._calls_since_step = self._calls_since_step, 0
        self._calls_to_skip = (steps - 1) * calls
        return steps if calls else 1

    def report_all_sites(self) -> None:
        """Report every call site at its next event, whatever `on_site` has returned."""
        for site_count in [*self._counts.values()]:
            site_count.next_count, site_count.next_time = AT_NEXT_EVENT

    def add(
        self,
        kind: EventKind,
        api: str,
        start: int,
        *,
        end: int | None = None,
        nbytes: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Add an event at the innermost line of user code on the stack.

        The event ends at `end`, or now if `end` is None. Times are nanoseconds.
        """
        self.write((kind, api, self.lines.current_line(2)), start, end or perf_counter_ns(), nbytes, detail=detail)

    def append(self, site: SiteKey, start: int, end: int) -> None:
        """Add an event whose kind marks no step, without reporting its site."""
        if len(self._events) < MAX_EVENTS:
            self._events.append((*site, get_ident(), start, end, 0, None))

    def write(
        self, site: SiteKey, start: int, end: int, nbytes: int = 0, *, detail: dict[str, Any] | None = None
    ) -> None:
        """Add an event, and report its site if a report is due. Hot path.

        Times are nanoseconds. If `on_step` is set, add nothing, and call `on_step` if the event ends a step.
        """
        if self.on_step is not None:
            if site == self.timed_site:
                self.on_step(end)
            return
        events = self._events
        if len(events) < MAX_EVENTS:
            events.append((*site, get_ident(), start, end, nbytes, detail))
        site_count = self._counts.get(site)
        if site_count is None:
            site_count = self._counts[site] = _SiteCount()
        site_count.count += 1
        if site_count.count >= site_count.next_count or end >= site_count.next_time:
            site_count.next_count, site_count.next_time = self._on_site(site, site_count.count, end)

    def _skip_call(self) -> bool:
        """Whether to skip this hook call. If so, count it as skipped."""
        if self._calls_to_skip <= 0:
            return False
        self._calls_to_skip -= 1
        return True

    def _is_pause_over(self) -> bool:
        """Whether the pause has ended. If so, clear `paused_until`."""
        if perf_counter_ns() < self.paused_until:
            return False
        self.paused_until = 0
        return True
