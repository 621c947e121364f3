"""User code inside an input pipeline: timed on any thread, also while another hook records."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["DatasetFacts", "FitCounter", "PythonStage", "dataset_facts", "fit_counter", "time_stage"]


class PythonStage(NamedTuple):
    """The stage of a pipeline that a user function implements."""

    api: str
    line: int  # where the function is defined; -1: not in user code
    what: str  # row, map, generator


def time_stage(ledger: Ledger, find_stage: Callable[[], PythonStage], function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` and record its time. Reads and conversions inside it belong to the stage."""
    if not ledger.is_on:
        return function(*args)
    is_outermost = ledger.begin()
    try:
        start = perf_counter_ns()
        result = function(*args)
        run_guarded(ledger, "an input pipeline", _record, ledger, find_stage, start, perf_counter_ns())
        return result
    finally:
        if is_outermost:
            ledger.end()


def _record(ledger: Ledger, find_stage: Callable[[], PythonStage], start: int, end: int) -> None:
    stage = find_stage()
    if stage.line >= 0:
        detail = {"what": stage.what, "count": 1}
        ledger.add(EventKind.PREPARE, stage.api, start, end=end, detail=detail, line=stage.line)


class DatasetFacts:
    """Facts about datasets. It keeps no dataset alive."""

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def add(self, dataset: Any, **facts: Any) -> None:
        self._facts.setdefault(dataset, {}).update(facts)

    def get(self, dataset: Any) -> dict[str, Any]:
        return self._facts.get(dataset, {})


class FitCounter:
    """Counts calls of `fit`. One `fit` makes an iterator for every epoch; the number groups those iterators."""

    def __init__(self) -> None:
        self.count = 0


fit_counter = FitCounter()  # the Keras hooks count, the TensorFlow hooks read
dataset_facts = DatasetFacts()  # the Keras hooks add facts of datasets made from arrays, the TensorFlow hooks read
