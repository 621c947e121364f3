"""Profiles TensorFlow or Keras inside a `with` block and returns the recorded events."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import LedgerEvent

DATA = np.arange(600, dtype="float32").reshape(20, 30)  # host data that cases upload


class RecordedEvents:
    """A profiling session without limits, with queries for its events."""

    def __init__(self) -> None:
        self.session = Session(StepDetector(steps=10**9, seconds=1e9))

    @property
    def notes(self) -> list[str]:
        """Return the notes without those of JAX, which Keras may have loaded."""
        return [note for note in self.session.ledger.notes if "JAX" not in note]

    def of(self, kind: str, api: str | None = None) -> list[LedgerEvent]:
        return [event for event in self.session.ledger.events if event.kind == kind and api in (None, event.api)]

    def apis(self, kind: str) -> set[str]:
        return {event.api for event in self.of(kind)}

    def detail(self, kind: str, name: str) -> list[Any]:
        return [(event.detail or {}).get(name) for event in self.of(kind)]

    def lines(self, kind: str) -> set[str]:
        lines = self.session.ledger.lines.read()
        return {lines[event.line].text for event in self.of(kind)}


@contextmanager
def watched() -> Iterator[RecordedEvents]:
    seen = RecordedEvents()
    seen.session.start()
    try:
        yield seen
    finally:
        seen.session.stop()


def attributes(owners: tuple[Any, ...]) -> list[dict[str, int]]:
    """Return the identities of all attributes, because equal objects may differ."""
    return [{name: id(value) for name, value in vars(owner).items()} for owner in owners]


def in_thread(act: Any) -> int:
    """Run a function in a thread; return the id of the thread."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return thread.ident or 0
