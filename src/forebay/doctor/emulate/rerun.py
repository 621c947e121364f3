"""Runs the script again with an emulated cure, until enough steps were timed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter_ns

from forebay.doctor.capture.profiled_run import RunRequest, run_profiled
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.capture.step_detector import SiteKey, StepDetector
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Emulation

__all__ = ["BLOCK_STEPS", "StepEnd", "TimedStepDetector", "rerun"]

StepEnd = tuple[str, str, str, int]  # kind, API, file and line number of the site that ends a step


def rerun(run: RunRequest, emulation: Emulation, end: StepEnd) -> Capture:
    """Run the script with an emulation and return the capture.

    `end` is the site that ends a step. `facts["emulated"]` of the capture holds the number of replaced calls and the
    notes of the emulator.
    """
    emulator = Emulator(emulation)
    detector = TimedStepDetector(warm_up=run.warm_up, wait=emulator.wait)
    session = Session(detector, on_enough=lambda: sys.exit(0), records_history=False)
    detector.is_end = _make_is_end(session.ledger.lines, end)
    emulator.start()
    try:
        capture = run_profiled(run, session)
    finally:
        emulator.stop()
    facts = {"replaced": emulator.replaced, "notes": list(emulator.notes)}
    return replace(capture, facts=capture.facts | {"emulated": facts})


def _make_is_end(lines: SourceLines, end: StepEnd) -> Callable[[SiteKey], bool]:
    """Return a function that tells whether a site of this run equals `end`."""

    def is_end(site: SiteKey) -> bool:
        kind, api, line = site
        file, number = lines.locations[line][:2] if line >= 0 else ("", 0)
        return (kind, api, file, number) == end

    return is_end


BLOCK_STEPS = 40  # steps per block; many, so that one wait per block adds almost nothing to the mean step time


@dataclass(slots=True)
class TimedStepDetector(StepDetector):
    """Times the steps that end at one known site, without device records.

    A script that does not wait may queue steps faster than the device executes them. So the detector waits for the
    device after each block of steps, and each step gets the mean time of its block. The site is known, so `steps` is
    small and the site need not recur for `wait_seconds`.
    """

    is_end: Callable[[SiteKey], bool] = lambda site: True  # whether a site ends a step
    wait: Callable[[], None] = lambda: None  # waits for the device
    steps: int = 5
    untraced_steps: int = 3 * BLOCK_STEPS
    wait_seconds: float = 0.0
    sample_seconds: float = 0.0
    short_seconds: float = 0.0
    _last_final: int = 0  # index of the last step end that is final; the ends after it change when their block ends

    def on_site(self, site: SiteKey, count: int, now: int) -> bool:
        if self.phase == "done" or not self.is_end(site):
            return False
        has_changed = StepDetector.on_site(self, site, count, now)
        if self.phase == "tracing":
            self.skip_tracing()
        elif self.phase != "profiling" and (has_changed or len(self.step_ends) % BLOCK_STEPS == 1):
            self.wait()
            self._spread_last_block(perf_counter_ns())
        return has_changed

    def finish(self, now: int) -> None:
        if self.phase == "timing" and self.step_ends:
            wait_start = perf_counter_ns()
            self.wait()
            # The time between the last step and the end of the script belongs to no step.
            self._spread_last_block(self.step_ends[-1] + perf_counter_ns() - wait_start)
        StepDetector.finish(self, now)

    def _spread_last_block(self, block_end: int) -> None:
        """Spread the step ends of the last block evenly.

        `block_end` is the time (nanoseconds) at which the device finished the block.
        """
        first, last = self._last_final, len(self.step_ends) - 1
        start = self.step_ends[first] if last else block_end
        for index in range(first, last + 1):
            self.step_ends[index] = start + (block_end - start) * (index - first) // max(1, last - first)
        self._last_final = last
