"""What the frameworks of Keras do while they are watched, for cases that run in a process of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import LedgerEvent


class Seen:
    """A watch that goes on, and what it has seen."""

    def __init__(self) -> None:
        self.session = Session(StepDetector(steps=10**9, seconds=1e9))

    @property
    def notes(self) -> list[str]:
        """Without what other frameworks say, which Keras may have loaded."""
        return [note for note in self.session.ledger.notes if "JAX" not in note]

    def of(self, kind: str, api: str | None = None) -> list[LedgerEvent]:
        return [event for event in self.session.ledger.events if event.kind == kind and api in (None, event.api)]

    def apis(self, kind: str) -> set[str]:
        return {event.api for event in self.of(kind)}

    def detail(self, kind: str, name: str) -> list[Any]:
        return [(event.detail or {}).get(name) for event in self.of(kind)]

    def lines(self, kind: str) -> set[str]:
        found = self.session.ledger.lines.read()
        return {found[event.line].text for event in self.of(kind)}


@contextmanager
def watched() -> Iterator[Seen]:
    seen = Seen()
    seen.session.start()
    try:
        yield seen
    finally:
        seen.session.stop()


def attributes(owners: tuple[Any, ...]) -> list[dict[str, int]]:
    """Which objects they have, not what these are equal to."""
    return [{name: id(value) for name, value in vars(owner).items()} for owner in owners]


def in_thread(act: Any) -> int:
    """Run it, and tell the thread."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return thread.ident or 0
