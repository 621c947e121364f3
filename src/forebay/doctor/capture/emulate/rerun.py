"""The script once more with a cure emulated, until enough steps were timed."""

import sys
from collections.abc import Callable
from dataclasses import replace

from forebay.doctor.capture.emulate.emulator import Emulator
from forebay.doctor.capture.emulate.stepping import TimedStepping
from forebay.doctor.capture.lines import Lines
from forebay.doctor.capture.running import Run, run_watched
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.window import Site
from forebay.doctor.captured import Capture
from forebay.doctor.emulation import Emulation

__all__ = ["StepEnd", "rerun"]

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
