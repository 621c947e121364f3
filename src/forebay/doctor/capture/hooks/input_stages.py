"""A timer for user functions in input pipelines, and facts that several hooks share.

The Keras hooks pass the facts to the TensorFlow hooks.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["DatasetFacts", "FitCounter", "PythonStage", "dataset_facts", "fit_counter", "time_stage"]


class PythonStage(NamedTuple):
    """A stage of an input pipeline that a user function implements."""

    api: str  # API name in events
    line: int  # index in `ledger.lines` of the line that defines the function; -1: not in user code
    what: str  # kind of stage: "row", "map" or "generator"


def time_stage(ledger: Ledger, find_stage: Callable[[], PythonStage], function: Callable[..., Any], *args: Any) -> Any:
    """Call `function(*args)`, record its time as one event of the stage, and return its result.

    `time_stage` records even inside another hook, where other hooks record nothing. While `function` runs, other hooks
    on this thread record nothing. A stage that is not in user code has no event.
    """
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
        ledger.write((EventKind.PREPARE, stage.api, stage.line), start, end, detail=detail)


class DatasetFacts:
    """Facts about datasets. The references to the datasets are weak."""

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def add(self, dataset: Any, **facts: Any) -> None:
        self._facts.setdefault(dataset, {}).update(facts)

    def get(self, dataset: Any) -> dict[str, Any]:
        return self._facts.get(dataset, {})


class FitCounter:
    """Counts calls of `Model.fit`.

    A call may create an iterator for each epoch. The event of an iterator stores `count`, which identifies its call of
    `fit`. A rule counts these calls.
    """

    def __init__(self) -> None:
        self.count = 0


# The Keras hooks change both objects. The TensorFlow hooks read them.
fit_counter = FitCounter()
dataset_facts = DatasetFacts()  # about the datasets that Keras creates for `fit`
