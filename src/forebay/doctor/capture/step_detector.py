"""Finds the training steps of a script and decides when enough of them were profiled.

Frameworks mark the end of a step: an optimizer step, a batch of `fit`. If no framework does, the detector takes a site
of the loop whose events recur. Profiling goes through these phases:

    profiling -> tracing -> timing -> done

After enough steps, `tracing` also records some steps on the device, if there is one. Then all hooks are removed except
the one that marks a step, and `timing` measures unprofiled steps. The difference is the cost of profiling.

A site that is not marked as a step must recur for some seconds, because it may belong to an earlier loop than the
training loop. Profiling all that time is not needed: the detector takes a short sample, pauses the hooks until the site
has recurred for long enough, and then profiles again.
"""

from dataclasses import dataclass, field
from typing import Literal

from forebay.doctor.capture.ledger import AT_ONCE, NEVER, NextReport, SiteKey
from forebay.doctor.model.events import LOOP_MARKS, EventKind

__all__ = ["Phase", "SiteKey", "StepDetector"]

Phase = Literal["profiling", "tracing", "timing", "done"]

# Lower is more reliable; 0 is a marked step.
_PRIORITY: dict[str, int] = {kind: priority for priority, kinds in enumerate(LOOP_MARKS) for kind in kinds}
_PRIORITY[EventKind.OPS] = len(LOOP_MARKS)  # a few milliseconds of operations, if nothing else recurs
_MIN_COUNT = 3  # events, before a site counts as recurring
_GONE_NS = 2_000_000_000  # a site without events for this long, plus some of its intervals, belonged to another loop
_GONE_INTERVALS = 5
_MIN_TIMED_NS = 50_000_000  # short steps are timed for at least this long
_BLOCK_STEPS = 16  # short steps are timed in blocks of this many
_MAX_REPORT_NS = 100_000_000  # the longest time between two reports of a site


@dataclass(slots=True)
class _LoopSite:
    """A site whose events may mark the steps of a loop. Times are integer nanoseconds, because this is a hot path."""

    priority: int
    wait_until: int  # the site must recur until then
    first: int  # time of its first event
    last: int = 0  # time of its latest event
    count: int = 0
    count_at_start: int = 0  # its count when the warm-up started
    warm_at: int = 0  # when the warm-up ended; 0: it has not started
    sample_until: int = 0

    def is_alive(self, now: int, min_count: int = _MIN_COUNT) -> bool:
        """Whether the site has had `min_count` events and still recurs."""
        if self.count < min_count:
            return False
        interval = (self.last - self.first) // max(1, self.count - 1)
        return now - self.last <= _GONE_NS + _GONE_INTERVALS * interval


@dataclass(slots=True)
class StepDetector:
    """Receives reports of sites and decides when the phase changes."""

    warm_up: int = 10  # steps
    steps: int = 50
    traced_steps: int = 10  # recording all device operations slows a launch-bound step by a quarter
    untraced_steps: int = 60  # they cost nothing; on a busy machine, 20 steps differ by a fifth from the next 20
    seconds: float = 10.0  # longest time of a phase after the warm-up
    wait_seconds: float = 3.0  # how long a site must recur if it is not marked as a step
    sample_seconds: float = 0.25  # shortest time of one sample of such a site
    short_seconds: float = 200e-6  # shorter steps are timed in blocks
    phase: Phase = "profiling"
    anchor: SiteKey | None = None  # the site that ends a step
    start: int = 0  # nanoseconds; of the profiled window
    end: int = 0
    block_steps: int = 1  # steps until the next report, while steps are timed
    paused_until: int = 0  # nanoseconds; the hooks may pause until then
    traced_step_ends: list[int] = field(default_factory=list)  # nanoseconds
    step_ends: list[int] = field(default_factory=list)  # nanoseconds; of unprofiled steps
    _sites: dict[SiteKey, _LoopSite] = field(default_factory=dict)
    _times_blocks: bool = False  # short steps are timed in blocks
    _sampled_site: SiteKey | None = None  # the site that was profiled from `start` to `end` before the pause

    def on_site(self, site: SiteKey, count: int, now: int) -> bool:
        """Take a report of a site; return whether the phase has changed."""
        if self.phase == "profiling":
            return self._on_profiled_site(site, count, now)
        if site != self.anchor or self.phase == "done":
            return False
        if self.phase == "tracing":
            self.traced_step_ends.append(now)
            enough = self._is_enough(self.traced_step_ends, self.traced_steps)
        else:
            self._add_step_ends(now)
            enough = self._is_enough(self.step_ends, self.untraced_steps) and not self._are_steps_short()
        if enough:
            self.phase = "timing" if self.phase == "tracing" else "done"
        return enough

    def next_report(self, site: SiteKey, now: int) -> NextReport:
        """Return when the ledger must report the site again; rarely, if it marks no step."""
        if self.phase != "profiling":
            return AT_ONCE if site == self.anchor else NEVER
        found = self._sites.get(site)
        if found is None:
            return NEVER
        enough = found.count_at_start + self.warm_up + self.steps
        if found.count <= found.count_at_start + self.warm_up:
            return AT_ONCE
        if found.count < enough:
            return enough, min(found.sample_until, now + _MAX_REPORT_NS)
        sampled_at = found.warm_at + int(self.sample_seconds * 1e9)
        return NEVER[0], min(sampled_at, now + _MAX_REPORT_NS) if sampled_at > now else now + _MAX_REPORT_NS

    def skip_tracing(self) -> None:
        """Go on to timing, because there is no device or CUPTI cannot record it."""
        self.phase = "timing"

    def finish(self, now: int) -> None:
        """End the detection because the script has ended. A sample taken before the pause counts."""
        if self.phase == "profiling":
            if self._sampled_site is not None and _PRIORITY[self._sampled_site[0]] <= self._best_priority(now):
                self.anchor = self._sampled_site
            else:
                self.start, self.end = 0, now
        self.phase = "done"

    def _is_enough(self, ends: list[int], steps: int) -> bool:
        return len(ends) > steps or ends[-1] - ends[0] > self.seconds * 1e9

    def _add_step_ends(self, now: int) -> None:
        """Add the ends of a block of steps; each step of a block gets the same time."""
        before, block = self.step_ends[-1] if self.step_ends else now, self.block_steps
        self.step_ends += [before + (now - before) * number // block for number in range(1, block + 1)]

    def _are_steps_short(self) -> bool:
        """Whether steps are so short that a report of each would slow them down; then time them in blocks."""
        lasted = self.step_ends[-1] - self.step_ends[0]
        if not self.short_seconds or lasted >= min(_MIN_TIMED_NS, len(self.step_ends) * self.short_seconds * 1e9):
            return False
        if not self._times_blocks:
            self.step_ends, self.block_steps, self._times_blocks = self.step_ends[-1:], _BLOCK_STEPS, True
        return True

    def _on_profiled_site(self, site: SiteKey, count: int, now: int) -> bool:
        found = self._sites.get(site) or self._add_site(site, now)
        if found is None:
            return False
        found.count, found.last = count, now
        if not found.warm_at:
            found.count_at_start = count - 1
        if now < self.paused_until:
            self._resume_for(found, now)
            return False
        passed = count - found.count_at_start
        if passed <= max(1, self.warm_up):
            found.warm_at, found.sample_until = now, now + int(self.seconds * 1e9)
            return False
        if passed < self.warm_up + self.steps and now <= found.sample_until:
            return False
        min_count = 1 if found.priority == _PRIORITY[EventKind.OPS] else _MIN_COUNT
        if found.priority > self._best_priority(now, min_count):
            return False  # a more reliable site recurs too, so this one lies inside a step
        if found.priority and now - found.warm_at < self.sample_seconds * 1e9:
            return False  # a longer sample of short steps is more reliable
        if found.priority and now < found.wait_until:
            self._pause(site, found, now)
            return False
        self.phase, self.anchor, self.start, self.end = "tracing", site, found.warm_at, now
        return True

    def _add_site(self, site: SiteKey, now: int) -> _LoopSite | None:
        """Add a new site; None if events of its kind mark no loop."""
        priority = _PRIORITY.get(site[0])
        if priority is None:
            return None
        found = self._sites[site] = _LoopSite(priority, now + int(self.wait_seconds * 1e9), now)
        return found

    def _best_priority(self, now: int, min_count: int = _MIN_COUNT) -> int:
        """Return the priority of the most reliable site that recurs."""
        alive = (site.priority for site in self._sites.values() if site.is_alive(now, min_count))
        return min(alive, default=len(_PRIORITY))

    def _pause(self, site: SiteKey, found: _LoopSite, now: int) -> None:
        """Keep the sample, and pause all hooks until this site has recurred for long enough."""
        self._sampled_site, self.start, self.end = site, found.warm_at, now
        self.paused_until = found.wait_until
        self._restart_warm_up()

    def _resume_for(self, found: _LoopSite, now: int) -> None:
        """End the pause if a more reliable site than the sampled one recurs."""
        if self._sampled_site is not None and found.priority < _PRIORITY[self._sampled_site[0]] and found.is_alive(now):
            self.paused_until = 0
            self._restart_warm_up()

    def _restart_warm_up(self) -> None:
        for site in self._sites.values():
            site.warm_at = 0
