"""Profiles a function in this process and returns the recorded events."""

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.paths import DOCTOR

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import LedgerEvent, Line

SCRIPTS = DOCTOR / "scripts"


@dataclass(frozen=True)
class RecordedEvents:
    """The recorded events of a run, and its result."""

    events: list[LedgerEvent]
    lines: list[Line]
    notes: list[str]
    result: Any

    @classmethod
    def of_capture(cls, capture: Capture) -> "RecordedEvents":
        return cls([*capture.events], [*capture.lines], [*capture.notes], None)

    def of(self, kind: str, api: str | None = None) -> list[LedgerEvent]:
        return [event for event in self.events if event.kind == kind and api in (None, event.api)]

    def text(self, event: LedgerEvent) -> str:
        """Return the source text of the line of an event."""
        return self.lines[event.line].text

    def details(self, kind: str, name: str, api: str | None = None) -> list[Any]:
        """Return one detail of all such events, in order; None for an event without it."""
        return [(event.detail or {}).get(name) for event in self.of(kind, api)]


def watched(run: Callable[[], Any]) -> RecordedEvents:
    """Profile a function until it returns."""
    session = Session(StepDetector(steps=10**9, seconds=1e9))
    session.start()
    try:
        result = run()
    finally:
        session.stop()
    return RecordedEvents(session.ledger.events, session.ledger.lines.read(), session.ledger.notes, result)


def run_script(path: str) -> Any:
    """Run a script of scripts/, and return its variable `answer`."""
    return runpy.run_path(str(SCRIPTS / f"{path}.py"), run_name="__main__")["answer"]
