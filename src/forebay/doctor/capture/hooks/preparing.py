"""The user's own part of an input pipeline, timed: on whatever thread, and inside whatever else is being watched."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

from forebay.doctor.capture.hooks.calls import quietly
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.events import Kind

__all__ = ["Part", "prepare"]


class Part(NamedTuple):
    """Which part of a pipeline a function of the user's is."""

    api: str
    line: int  # where it is defined; -1 where it is not the user's
    what: str  # row, map, generator


def prepare(ledger: Ledger, about: Callable[[], Part], function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`, which is the part that `about` tells; what it reads or converts belongs to the preparing."""
    if not ledger.on:
        return function(*args)
    outermost = ledger.enter()
    try:
        start = perf_counter_ns()
        result = function(*args)
        quietly(ledger, "an input pipeline", _write, ledger, about, start, perf_counter_ns())
        return result
    finally:
        if outermost:
            ledger.leave()


def _write(ledger: Ledger, about: Callable[[], Part], start: int, end: int) -> None:
    part = about()
    if part.line >= 0:
        detail = {"what": part.what, "count": 1}
        ledger.add(Kind.PREPARE, part.api, start, end=end, detail=detail, line=part.line)
