"""The script once more with a cure emulated, until enough steps were timed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter_ns

from forebay.doctor.capture.run_watched import Run, run_watched
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.source_lines import Lines
from forebay.doctor.capture.step_detector import Site, Stepping
from forebay.doctor.emulate.emulator import Emulator
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.emulation import Emulation

__all__ = ["BLOCK_STEPS", "StepEnd", "TimedStepping", "rerun"]

StepEnd = tuple[str, str, str, int]  # kind, api, file and number of the line that ends a step


def rerun(run: Run, emulation: Emulation, end: StepEnd) -> Capture:
    """What was seen; how many calls were not made as written is among its facts."""
    emulator = Emulator(emulation)
    stepping = TimedStepping(warm_up=run.warm_up, wait=emulator.wait)
    session = Session(stepping, done=lambda: sys.exit(0))
    stepping.is_end = _is_end(session.ledger.lines, end)
    emulator.start()
    try:
        capture = run_watched(run, session)
    finally:
        emulator.stop()
    told = {"replaced": emulator.replaced, "notes": list(emulator.notes)}
    return replace(capture, facts=capture.facts | {"emulated": told})


def _is_end(lines: Lines, end: StepEnd) -> Callable[[Site], bool]:
    def is_end(site: Site) -> bool:
        kind, api, line = site
        file, number = lines.found[line][:2] if line >= 0 else ("", 0)
        return (kind, api, file, number) == end

    return is_end


BLOCK_STEPS = 40  # to wait after so many costs a step hardly anything


@dataclass(slots=True)
class TimedStepping(Stepping):
    """Looks at one line only; nothing is recorded on the device.

    Where nothing waits for the device any more, Python queues steps faster than they are done. So the device is waited
    for after each block of steps, and a step takes what its block took for each.
    """

    is_end: Callable[[Site], bool] = lambda site: True  # of a step
    wait: Callable[[], None] = lambda: None  # for the device
    steps: int = 5
    untraced_steps: int = 3 * BLOCK_STEPS
    patience_seconds: float = 0.0
    glance_seconds: float = 0.0
    short_seconds: float = 0.0
    _settled: int = 0  # marks up to here

    def note(self, site: Site, count: int, now: int) -> bool:
        if self.phase == "over" or not self.is_end(site):
            return False
        changed = Stepping.note(self, site, count, now)
        if self.phase == "tracing":
            self.skip_tracing()
        elif self.phase != "watching" and (changed or len(self.marks) % BLOCK_STEPS == 1):
            self.wait()
            self._settle(perf_counter_ns())
        return changed

    def finish(self, now: int) -> None:
        if self.phase == "timing" and self.marks:
            since = perf_counter_ns()
            self.wait()
            self._settle(self.marks[-1] + perf_counter_ns() - since)  # what came after the last step is none of it
        Stepping.finish(self, now)

    def _settle(self, done: int) -> None:
        """The block that ends with the last mark was done by then."""
        first, last = self._settled, len(self.marks) - 1
        begun = self.marks[first] if last else done
        for number in range(first, last + 1):
            self.marks[number] = begun + (done - begun) * (number - first) // max(1, last - first)
        self._settled = last
