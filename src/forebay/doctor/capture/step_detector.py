"""Finds the training steps of a script and decides when enough of them were profiled.

Some events mark the end of a step: an optimizer step, a batch of `fit`. Without such an event, the detector chooses a
call site whose events recur. Profiling has these phases:

    profiling -> input tracing -> tracing -> timing -> done

`profiling` records events of the host. `input tracing` also traces the input of some steps, if a framework reads its
batches where no hook runs. `tracing` also records some steps on the device, if CUPTI is available. Then the session
removes all hooks except the hook that marks a step, and `timing` measures unprofiled steps. The difference between
profiled and unprofiled steps is the cost of profiling. In names, `traced` steps are those recorded on the device, and
`untraced` steps are unprofiled.

A chosen call site must recur for some seconds, because it may belong to a loop before the training loop. Meanwhile the
detector profiles a short sample of its events and then pauses the hooks. When the site has recurred for long enough,
the detector profiles it again. Sites of eager operations begin their warm-up again after each of the first
compilations, because operations and compilations may both build the model. Compilations do not count as time in which a
site recurs: the first step may copy its batch twice, and then compile for ten seconds.

A loop may end before the phase `tracing`. So in a process with CUDA, `early tracing` records a few steps of a site on
the device, after its first profiled steps, or even before its warm-up has ended if steps take long. Then profiling
starts again. If the loop ends before `tracing`, the capture contains these early records. If the loop ends during
`early tracing`, another loop is profiled from its beginning.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from forebay.doctor.capture.ledger import AT_NEXT_EVENT, NEVER, NextReport, SiteKey
from forebay.doctor.capture.loop_site import MIN_COUNT, PRIORITY, LoopSite, LoopSites
from forebay.doctor.model.events import EventKind

__all__ = ["Phase", "SiteKey", "StepDetector"]

Phase = Literal["profiling", "early tracing", "input tracing", "tracing", "timing", "done"]

_NO_COUNT = NEVER[0]  # event count of a NextReport that only its time triggers
_NEXT_PHASES: dict[Phase, Phase] = {"input tracing": "tracing", "tracing": "timing", "timing": "done"}
_MIN_TIMED_NS = 50_000_000  # steps shorter than `StepDetector.short_seconds` are timed for at least this long
_BLOCK_STEPS = 16  # short steps are timed in blocks of this many
# Further compilations do not build the model: the loop itself compiles.
_MAX_BUILDING_COMPILATIONS = 200
_OTHER_REPORT_NS = 10_000_000  # in `early tracing`, the ledger reports other sites at their first event after this time
_MAX_REPORT_NS = 100_000_000  # while profiling, the ledger reports a site at its first event after this time


@dataclass(slots=True)
class StepDetector:
    """Receives reports of call sites from the ledger and decides when the phase changes."""

    warm_up: int = 10  # steps before the profiled steps
    steps: int = 50  # steps to profile
    traced_steps: int = 10  # few, because recording all device operations slows a launch-bound step by a quarter
    input_steps: int = 10  # steps of `input tracing`; few, because a trace slows them by up to a half
    untraced_steps: int = 60  # not fewer: on a busy machine, the times of two runs of 20 steps differ by a fifth
    seconds: float = 10.0  # after this time, a phase or the warm-up ends with fewer steps
    wait_seconds: float = 3.0  # how long a site must recur, unless its events are EventKind.STEP
    sample_seconds: float = 0.25  # least duration of the sample of a site that must recur for `wait_seconds`
    early_steps: int = 10  # steps to profile before `early tracing`
    # If this many events take this long, `early tracing` starts with them: a loop of few long steps may end soon.
    early_events: int = 5
    early_seconds: float = 0.1
    early_traced_steps: int = 5  # steps to record on the device in `early tracing`
    warm_up_again: int = 3  # steps of the second warm-up, after `early tracing`
    can_trace: Callable[[], bool] = lambda: False  # whether steps can be recorded on a device
    can_trace_input: Callable[[], bool] = lambda: False  # whether the input of some steps must be traced
    # Shorter steps are timed in blocks, because a report of each step would slow them. 0: time each step.
    short_seconds: float = 200e-6
    phase: Phase = "profiling"
    anchor: SiteKey | None = None  # the site that ends a step
    start: int = 0  # nanoseconds; start of the profiled window
    end: int = 0  # nanoseconds; end of the profiled window
    block_steps: int = 1  # steps until the next report, while steps are timed
    paused_until: int = 0  # nanoseconds; the hooks pause until this time
    traced_step_ends: list[int] = field(default_factory=list)  # nanoseconds; of steps recorded on the device
    step_ends: list[int] = field(default_factory=list)  # nanoseconds; of unprofiled steps
    _input_step_ends: list[int] = field(default_factory=list)  # nanoseconds; of `input tracing`
    _sites: LoopSites = field(default_factory=LoopSites)
    _compilations: int = 0  # reported while profiling
    _compiled_until: int = 0  # nanoseconds; end of the last compilation that `on_compilation` got
    _times_blocks: bool = False  # whether steps are timed in blocks
    # The site that was profiled from `start` to `end`, before the pause or before `early tracing`.
    _sampled_site: SiteKey | None = None
    _sampled_steps: int = 0  # number of steps profiled before `early tracing`; 0: unknown
    _early_site: SiteKey | None = None  # the site whose steps `traced_step_ends` are; None before `early tracing`
    _other_reports: Counter[SiteKey] = field(default_factory=Counter)  # of other sites in `early tracing`
    _is_tracing_refused: bool = False  # whether there is no device to record

    def on_site(self, site: SiteKey, count: int, now: int) -> bool:
        """Process the report of a site with `count` events; return whether the phase has changed."""
        if self.phase == "profiling":
            if site[0] == EventKind.COMPILE:
                self._compilations += 1
                if self._compilations <= _MAX_BUILDING_COMPILATIONS:
                    self._sites.restart_warm_up(PRIORITY[EventKind.OPS])
                return False
            return self._on_profiled_site(site, count, now)
        if self.phase == "early tracing":
            return self._on_early_traced_site(site, count, now)
        if site != self.anchor or self.phase == "done":
            return False
        has_enough = self._add_step(now)
        if has_enough:
            self._begin(_NEXT_PHASES[self.phase])
        return has_enough

    def on_compilation(self, start: int, end: int) -> None:
        """Exclude the time of a compilation from the times for which sites have recurred."""
        start, self._compiled_until = max(start, self._compiled_until), max(end, self._compiled_until)
        for site in self._sites.values():
            site.exclude(start, end)

    def _begin(self, phase: Phase) -> None:
        """Begin a phase. Drop the `traced_step_ends` of `early tracing` if they become outdated."""
        self.phase = phase
        if phase == "tracing" or (phase == "input tracing" and self.anchor != self._early_site):
            self.traced_step_ends = []

    def _add_step(self, now: int) -> bool:
        """Add a step of a phase after `profiling`; return whether the phase has enough."""
        if self.phase == "timing":
            self._add_step_ends(now)
            return self._is_enough(self.step_ends, self.untraced_steps) and not self._needs_more_steps()
        is_input = self.phase == "input tracing"
        ends = self._input_step_ends if is_input else self.traced_step_ends
        ends.append(now)
        return self._is_enough(ends, self.input_steps if is_input else self.traced_steps)

    def next_report(self, site: SiteKey, now: int) -> NextReport:
        """Return when the ledger must report the site again.

        The result is an event count and a time (ns); the ledger reports the site at the earlier one.
        """
        if self.phase == "early tracing":
            return AT_NEXT_EVENT if site == self._sampled_site else (_NO_COUNT, now + _OTHER_REPORT_NS)
        if self.phase != "profiling":
            return AT_NEXT_EVENT if site == self.anchor else NEVER
        loop_site = self._sites.get(site)
        if loop_site is None:
            may_build = site[0] == EventKind.COMPILE and self._compilations < _MAX_BUILDING_COMPILATIONS
            return AT_NEXT_EVENT if may_build else NEVER
        last_count = loop_site.count_at_start + self.warm_up + self.steps
        if loop_site.count <= loop_site.count_at_start + self.warm_up:
            return AT_NEXT_EVENT
        early_count = loop_site.count_at_start + self.warm_up + self.early_steps
        if loop_site.count < early_count < last_count and self._may_trace_early(loop_site, now):
            return early_count, loop_site.sample_until
        if loop_site.count < last_count:
            return last_count, min(loop_site.sample_until, now + _MAX_REPORT_NS)
        sampled_at = loop_site.warm_at + int(self.sample_seconds * 1e9)
        return _NO_COUNT, min(sampled_at, now + _MAX_REPORT_NS) if sampled_at > now else now + _MAX_REPORT_NS

    def skip_tracing(self) -> None:
        """Continue without device records: skip `tracing`, or return from `early tracing`."""
        if self.phase == "tracing":
            self.phase = "timing"
        else:
            self.phase, self._sampled_site, self._early_site = "profiling", None, None
            self._is_tracing_refused = True

    def finish(self, now: int) -> None:
        """End profiling, because the session stops.

        In the phases `profiling` and `early tracing`, the sample from before a pause or before `early tracing` becomes
        the profiled window, unless a more reliable site recurs or more steps of the same site were profiled since.
        Operations do not become the window if a more reliable site has warmed up at any time: they may have built the
        model. If the sample has no STEP events, but a STEP site has enough profiled steps, these steps become the
        window instead. Otherwise the window is the whole run, without an anchor.
        """
        if self.phase in ("profiling", "early tracing"):
            if self._sampled_site is not None and self._sampled_site[0] != EventKind.STEP and self._find_training():
                self._use_training()
            elif self._sampled_site is not None and PRIORITY[self._sampled_site[0]] <= self._final_priority(now):
                self.anchor = self._sampled_site
                self._prefer_later_steps(self._sites[self._sampled_site])
            else:
                self.start, self.end = 0, now
            if self.anchor != self._early_site:  # the steps on the device are those of another loop
                self.traced_step_ends = []
        self.phase = "done"

    def _final_priority(self, now: int) -> int:
        """Return the best priority of sites that recur; for operations, also of ended sites."""
        is_of_operations = self._sampled_site is not None and self._sampled_site[0] == EventKind.OPS
        ended = [site.priority for site in self._sites.values() if is_of_operations and site.count > self.warm_up]
        return min([self._sites.best_priority(now), *ended])

    def _prefer_later_steps(self, loop_site: LoopSite) -> None:
        """Use the steps since the last warm-up as the window, if there are enough."""
        steps = loop_site.count - loop_site.count_at_start - self.warm_up
        sampled = self._sampled_steps or self.early_steps
        if self._early_site is not None and loop_site.warm_at > self.end and steps >= min(sampled, self.early_steps):
            self.start, self.end = loop_site.warm_at, loop_site.last

    def _is_enough(self, ends: list[int], steps: int) -> bool:
        """Whether `steps` steps were recorded, or the phase has lasted for `seconds`."""
        return len(ends) > steps or ends[-1] - ends[0] > self.seconds * 1e9

    def _add_step_ends(self, now: int) -> None:
        """Add the step ends of the block that ended now, at equal distances."""
        before, block = self.step_ends[-1] if self.step_ends else now, self.block_steps
        self.step_ends += [before + (now - before) * number // block for number in range(1, block + 1)]

    def _needs_more_steps(self) -> bool:
        """Whether short steps must be timed for longer.

        If so, time the next steps in blocks, and drop the steps that were timed one by one.
        """
        timed_ns = self.step_ends[-1] - self.step_ends[0]
        if not self.short_seconds or timed_ns >= min(_MIN_TIMED_NS, len(self.step_ends) * self.short_seconds * 1e9):
            return False
        if not self._times_blocks:
            self.step_ends, self.block_steps, self._times_blocks = self.step_ends[-1:], _BLOCK_STEPS, True
        return True

    def _on_profiled_site(self, site: SiteKey, count: int, now: int) -> bool:
        """Process a report in the phase `profiling`; return whether the phase has changed."""
        if (loop_site := self._sites.find(site, now, wait_seconds=self.wait_seconds)) is None:
            return False
        loop_site.count, loop_site.last = count, now
        if not loop_site.warm_at:
            loop_site.count_at_start, loop_site.warm_since = count - 1, now
        if now < self.paused_until:
            self._resume_for(loop_site, now)
            return False
        event_count = count - loop_site.count_at_start
        loop_site.second = now if event_count <= 2 else loop_site.second
        if self._is_slow(loop_site, now) and self._begin_early_tracing(site, loop_site, now):
            self.start = loop_site.second
            return True
        has_warmed_up = event_count > 2 and now - loop_site.warm_since > self.seconds * 1e9  # if steps take seconds
        if event_count <= max(1, self.warm_up) and not has_warmed_up:
            loop_site.warm_at, loop_site.sample_until = now, now + int(self.seconds * 1e9)
            loop_site.warm_count = count
            return False
        if self._may_trace_early(loop_site, now) and event_count >= self.warm_up + self.early_steps:
            return self._begin_early_tracing(site, loop_site, now)
        has_all_steps = event_count >= self.warm_up + self.steps
        if not has_all_steps and (now <= loop_site.sample_until or not loop_site.has_window()):
            return False
        # An OPS event is the last choice, and few events in a long time may belong to one step. In both cases one event
        # of a more reliable site is enough to prefer that site.
        min_count = 1 if loop_site.priority == PRIORITY[EventKind.OPS] or not has_all_steps else MIN_COUNT
        if loop_site.priority > self._sites.best_priority(now, min_count):
            return False  # a more reliable site recurs too, and marks the steps
        if loop_site.priority and now - loop_site.warm_at < self.sample_seconds * 1e9:
            return False  # the sample is too short to be reliable
        if loop_site.priority and self._find_training():
            self._use_training()
            self.phase = "timing"
            return True
        if loop_site.priority and now < loop_site.wait_until:
            self._pause(site, loop_site, now)
            return False
        self.anchor, self.start, self.end = site, loop_site.warm_at, now
        self._begin("input tracing" if self.can_trace_input() else "tracing")
        return True

    def _is_slow(self, loop_site: LoopSite, now: int) -> bool:
        """Whether `early tracing` must not wait for more steps, because each of them takes long."""
        return self._may_trace_early(loop_site, now) and loop_site.takes_long(
            self.early_events, self.early_seconds, now
        )

    def _find_training(self) -> SiteKey | None:
        """Return the STEP site with the most profiled steps; None if it has too few.

        After a training that was too short for all steps, a script may use its model in another loop. The window must
        then have the steps of the training.
        """
        trainings = [
            (loop_site.count - loop_site.count_at_start - self.warm_up, site)
            for site, loop_site in self._sites.items()
            if not loop_site.priority and loop_site.warm_at
        ]
        steps, site = max(trainings, default=(0, None))
        return site if steps >= self.early_steps else None

    def _use_training(self) -> None:
        """Make the steps of the training, which has ended, the profiled window."""
        self.anchor = self._find_training()
        assert self.anchor is not None
        loop_site = self._sites[self.anchor]
        self.start, self.end = loop_site.warm_at, loop_site.last

    def _may_trace_early(self, loop_site: LoopSite, now: int) -> bool:
        """Whether `early tracing` may record the steps of this site.

        No more reliable site may recur, and `early tracing` must not have recorded a site that is as reliable.
        """
        if self._is_tracing_refused or loop_site.priority > self._sites.best_priority(now, 1):
            return False
        return self._early_site is None or loop_site.priority < PRIORITY[self._early_site[0]]

    def _begin_early_tracing(self, site: SiteKey, loop_site: LoopSite, now: int) -> bool:
        """Begin `early tracing` if there is a device; return whether the phase has changed."""
        self._is_tracing_refused = not self.can_trace()
        if self._is_tracing_refused:
            return False
        self.phase, self.start, self.end = "early tracing", loop_site.warm_at, now
        self._sampled_site = self._early_site = site
        self._sampled_steps = min(self.early_steps, loop_site.count - loop_site.count_at_start - 2)
        self.traced_step_ends = []
        self._other_reports.clear()
        return True

    def _on_early_traced_site(self, site: SiteKey, count: int, now: int) -> bool:
        """Process a report in the phase `early tracing`; return whether the phase has changed."""
        if site != self._sampled_site:
            return self._ends_early_tracing(site, count, now)
        self._sites[site].last = now
        self.traced_step_ends.append(now)
        if not self._is_enough(self.traced_step_ends, self.early_traced_steps):
            return False
        self.phase, self.warm_up = "profiling", min(self.warm_up, self.warm_up_again)
        self._sites.restart_warm_up()
        return True

    def _ends_early_tracing(self, site: SiteKey, count: int, now: int) -> bool:
        """Return to `profiling` if a more reliable site recurs, or if another one recurs after the sampled loop."""
        loop_site = self._sites.find(site, now, wait_seconds=self.wait_seconds)
        if loop_site is None or self._sampled_site is None:
            return False
        loop_site.count, loop_site.last = count, now
        self._other_reports[site] += 1
        sampled = self._sites[self._sampled_site]
        has_ended = loop_site.priority < sampled.priority or not sampled.is_alive(now, 1)
        if self._other_reports[site] < MIN_COUNT or not has_ended:
            return False
        self.phase, self._sampled_site, self._early_site, self.traced_step_ends = "profiling", None, None, []
        self._sites.restart_warm_up()
        return True

    def _pause(self, site: SiteKey, loop_site: LoopSite, now: int) -> None:
        """Store the sample of this site, and pause all hooks until its `wait_until`."""
        self._sampled_site, self.start, self.end = site, loop_site.warm_at, now
        self.paused_until = loop_site.wait_until
        self._sites.restart_warm_up()

    def _resume_for(self, loop_site: LoopSite, now: int) -> None:
        """End the pause if this site recurs and is more reliable than the sampled site."""
        if (
            self._sampled_site is not None
            and loop_site.priority < PRIORITY[self._sampled_site[0]]
            and loop_site.is_alive(now)
        ):
            self.paused_until = 0
            self._sites.restart_warm_up()
