"""Call sites whose events may mark steps, with the number and the times of these events."""

from dataclasses import dataclass

from forebay.doctor.capture.ledger import SiteKey
from forebay.doctor.model.events import LOOP_MARKS, EventKind

__all__ = ["MIN_COUNT", "PRIORITY", "LoopSite", "LoopSites", "make_loop_site"]

# How reliably a kind of event marks a step; lower is more reliable, 0 is EventKind.STEP.
PRIORITY: dict[str, int] = {kind: priority for priority, kinds in enumerate(LOOP_MARKS) for kind in kinds}
PRIORITY[EventKind.OPS] = len(LOOP_MARKS)  # one OPS event covers a few milliseconds, so it is the last choice
# Sites of these kinds must recur for this multiple of `StepDetector.wait_seconds`. Operations of one line may build a
# model for some seconds, and a loop before the training may copy data that it draws or prepares.
_LONG_WAITS: dict[str, int] = {EventKind.OPS: 3, EventKind.UPLOAD: 2, EventKind.DOWNLOAD: 2, EventKind.MOVE: 2}
# Events since the warm-up. If profiling ends before all steps, a window needs at least this many, because
# `analyse.steps` needs 3 steps.
MIN_WINDOW_STEPS = 4
MIN_COUNT = 3  # events; a site with fewer does not count as recurring
# A loop counts as ended if its site has no event for _GONE_NS plus _GONE_INTERVALS times the mean interval of the site.
_GONE_NS = 2_000_000_000
_GONE_INTERVALS = 5
# Instead of these limits, the longer _STEPS_GONE_NS and _STEPS_GONE_INTERVALS hold for a STEP site with at least
# _MANY_STEPS events, and for any STEP site if one event is enough (`min_count`): steps may take seconds, and at the end
# of an epoch, a script may draw images for some seconds.
_MANY_STEPS = 10
_STEPS_GONE_NS = 10_000_000_000
_STEPS_GONE_INTERVALS = 20


@dataclass(slots=True)
class LoopSite:
    """A call site whose events may mark the steps of a loop. Times are nanoseconds."""

    priority: int
    wait_until: int  # the site must recur until this time before its events may mark steps; ignored for STEP events
    first: int  # time of the first event
    last: int = 0  # time of the latest reported event
    count: int = 0  # events until the latest report
    count_at_start: int = 0  # events before the warm-up
    warm_since: int = 0  # time of the first event of the warm-up, which may have restarted
    warm_at: int = 0  # time of the latest event of the warm-up; 0: the warm-up has not started
    warm_count: int = 0  # events until `warm_at`
    sample_until: int = 0  # profiling of the site ends at this time, even after fewer than `StepDetector.steps` steps
    second: int = 0  # time of the second event; the step before it may still compile functions

    def is_alive(self, now: int, min_count: int = MIN_COUNT) -> bool:
        """Whether the site has had `min_count` events and still recurs."""
        if self.count < min_count:
            return False
        interval = max(0, self.last - self.first) // max(1, self.count - 1)
        longest = _GONE_NS + _GONE_INTERVALS * interval
        if not self.priority and (self.count >= _MANY_STEPS or min_count == 1):
            longest = _STEPS_GONE_NS + _STEPS_GONE_INTERVALS * interval
        return now - self.last <= longest

    def has_window(self) -> bool:
        """Whether the events since the warm-up are enough for a window with steps."""
        return self.count - self.warm_count >= MIN_WINDOW_STEPS

    def exclude(self, start: int, end: int) -> None:
        """Do not count the time from `start` to `end` as time in which the site recurred.

        In this time, a compilation delayed the events of the site.
        """
        self.warm_since += max(0, end - max(start, self.warm_since))
        excluded = end - max(start, self.first)
        if excluded > 0:
            self.first += excluded
            self.wait_until += excluded
            self.sample_until += excluded if self.sample_until else 0

    def takes_long(self, events: int, seconds: float, now: int) -> bool:
        """Whether the warm-up has `events` events, and its first event is `seconds` old."""
        return self.count - self.count_at_start >= events and now - self.warm_since >= seconds * 1e9


def make_loop_site(kind: str, now: int, *, wait_seconds: float) -> LoopSite | None:
    """Return a site that had its first event at the time `now` (ns).

    Return None if events of its kind cannot mark steps. `wait_seconds` is how long a site must recur. Sites of some
    kinds must recur for longer.
    """
    priority = PRIORITY.get(kind)
    if priority is None:
        return None
    return LoopSite(priority, now + int(wait_seconds * _LONG_WAITS.get(kind, 1) * 1e9), now)


class LoopSites(dict[SiteKey, LoopSite]):
    """The call sites of a run."""

    def find(self, site: SiteKey, now: int, *, wait_seconds: float) -> LoopSite | None:
        """Return a site, added if it is new; None if events of its kind cannot mark steps."""
        if site not in self and (made := make_loop_site(site[0], now, wait_seconds=wait_seconds)) is not None:
            self[site] = made
        return self.get(site)

    def best_priority(self, now: int, min_count: int = MIN_COUNT) -> int:
        """Return the priority of the most reliable site that still recurs.

        If none recurs, return a number that is larger than every priority.
        """
        priorities = (site.priority for site in self.values() if site.is_alive(now, min_count))
        return min(priorities, default=len(PRIORITY))

    def restart_warm_up(self, priority: int = 0) -> None:
        """Restart the warm-up of all sites whose priority is at least `priority`."""
        for site in self.values():
            if site.priority >= priority:
                site.warm_at = 0
