"""Profiles PyTorch inside a `with` block and returns the recorded events."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from forebay.doctor.capture.hooks.torch import install
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind, LedgerEvent, Line

__all__ = ["RecordedEvents", "optimizer_of", "watched"]


class RecordedEvents:
    """The recorded events of a ledger, with queries for tests."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def of(self, *kinds: EventKind) -> list[LedgerEvent]:
        return [event for event in self.ledger.events if event.kind in kinds]

    def apis(self, *kinds: EventKind) -> list[str]:
        return [event.api for event in self.of(*kinds)]

    @property
    def one(self) -> LedgerEvent:
        (event,) = self.ledger.events
        return event

    def line(self, event: LedgerEvent) -> Line:
        return self.ledger.lines.read()[event.line]


@contextmanager
def watched() -> Iterator[RecordedEvents]:
    ledger = Ledger()
    patches = Patches(ledger)
    install(patches)
    try:
        yield RecordedEvents(ledger)
    finally:
        patches.restore()


def optimizer_of(*shape: int) -> torch.optim.SGD:
    """Return an optimizer of one parameter that has a gradient."""
    parameter = torch.nn.Parameter(torch.ones(shape))
    parameter.grad = torch.ones(shape)
    return torch.optim.SGD([parameter], lr=0.1)
