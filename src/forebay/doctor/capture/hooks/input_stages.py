"""The user's own part of an input pipeline, timed: on whatever thread, and inside whatever else is being watched."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.calls import quietly
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import Kind

__all__ = ["Fits", "Loaders", "Part", "fits", "loaders", "prepare"]


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


class Loaders:
    """Holds no dataset alive."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def tell(self, dataset: Any, **facts: Any) -> None:
        self._told.setdefault(dataset, {}).update(facts)

    def of(self, dataset: Any) -> dict[str, Any]:
        return self._told.get(dataset, {})


class Fits:
    """Counts them, so that iterators of one `fit`, which makes one for every epoch, are told from those of many."""

    def __init__(self) -> None:
        self.begun = 0


fits = Fits()  # told by Keras, asked where TensorFlow makes an iterator
loaders = Loaders()  # between Keras, which makes datasets of arrays, and TensorFlow, which waits for them
