"""Runs something in this process with the doctor's hooks, and tells what the ledger holds."""

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
class Seen:
    """What the ledger holds after a run, and what the run came to."""

    events: list[LedgerEvent]
    lines: list[Line]
    notes: list[str]
    result: Any

    @classmethod
    def of_capture(cls, capture: Capture) -> "Seen":
        return cls([*capture.events], [*capture.lines], [*capture.notes], None)

    def of(self, kind: str, api: str | None = None) -> list[LedgerEvent]:
        return [event for event in self.events if event.kind == kind and api in (None, event.api)]

    def text(self, event: LedgerEvent) -> str:
        """What stands on the line that is said to have done it."""
        return self.lines[event.line].text

    def details(self, kind: str, name: str, api: str | None = None) -> list[Any]:
        """One detail of all such events, in order; None where an event does not tell."""
        return [(event.detail or {}).get(name) for event in self.of(kind, api)]


def watched(run: Callable[[], Any]) -> Seen:
    """Watch a function from its beginning to its end."""
    session = Session(StepDetector(steps=10**9, seconds=1e9))
    session.start()
    try:
        result = run()
    finally:
        session.stop()
    return Seen(session.ledger.events, session.ledger.lines.read(), session.ledger.notes, result)


def bare_script(path: str) -> Any:
    return runpy.run_path(str(SCRIPTS / f"{path}.py"), run_name="__main__")["answer"]
