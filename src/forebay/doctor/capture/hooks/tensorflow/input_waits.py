"""The wait for a batch inside a compiled function, where no hook reaches: TensorFlow's own record of the host tells it.

`Model.fit` hands its iterator to a compiled function that takes the batches itself; so do loops that want to be fast.
The record is kept for a window of such calls, and costs a fraction of a microsecond for every operation in them.
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import tensorflow as tf
from tensorflow.python.profiler import profiler_v2

from forebay.doctor.capture.hooks.calls import quietly
from forebay.doctor.capture.hooks.tensorflow.pipelines import Pipelines, api_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["FIRST_CALLS", "Waits", "watch_profiler"]

FIRST_CALLS = 5  # these trace and warm up
MOST_CALLS = 150
LONGEST_NS = 15_000_000_000
API = "waits inside compiled functions"
_RECORD = (
    "forebay.doctor.capture.hooks.tensorflow.host_trace"  # loaded when it is wanted: its parts move between versions
)


@dataclass(frozen=True, slots=True)
class _Run:
    """A call of a compiled function that takes batches."""

    start: int
    end: int
    line: int
    detail: dict[str, Any]


class Waits:
    """Has a window of calls recorded, and writes down what waits were in them."""

    def __init__(self, ledger: Ledger, pipelines: Pipelines) -> None:
        self._ledger, self._pipelines = ledger, pipelines
        self._calls = 0
        self._runs: list[_Run] = []
        self._record: Any = None
        self._taken: list[Any] = []
        self._over = False

    def waited_inside(self, iterator: Any, start: int, end: int) -> None:
        """A compiled function that was given an iterator has ended."""
        line = self._ledger.lines.here()
        if self._over or line < 0:
            return
        self._calls += 1
        if self._record is not None:
            dataset = getattr(iterator, "_dataset", None)  # none where it is spread over devices
            detail = self._pipelines.of(dataset) if dataset is not None else {"loader": "tf.data"}
            self._runs.append(_Run(start, end, line, detail))
            self.look_at_the_clock(end)
        elif self._calls == FIRST_CALLS:
            self._begin()

    def look_at_the_clock(self, now: int) -> None:
        """It may not go on for ever, whatever the script does next."""
        record = self._record
        if record is not None and (now - record.began > LONGEST_NS or len(self._runs) >= MOST_CALLS):
            self.stop()

    def stop(self) -> None:
        """End the record."""
        record, self._record, self._over = self._record, None, True
        if record is not None:
            quietly(self._ledger, API, lambda: self._taken.extend(record.stop()))

    def finish(self) -> None:
        """Write down what was recorded: when watching is over, as what comes late must not be taken for a new step."""
        self.stop()
        quietly(self._ledger, API, self._write)

    def _begin(self) -> None:
        try:
            self._record = import_module(_RECORD).Record()
        except Exception as error:  # somebody else profiles, and goes on; or another version of TensorFlow
            self._over = True
            self._ledger.note(f"{API} are not watched: {type(error).__name__}: {error}")

    def _write(self) -> None:
        """A batch belongs to the run it was taken in; one that a loop took for itself is seen elsewhere."""
        runs = iter(self._runs)
        run = next(runs, None)
        for taken in self._taken:
            middle = (taken.start + taken.end) // 2
            while run is not None and run.end < middle:
                run = next(runs, None)
            if run is not None and run.start <= middle:
                start, end = max(taken.start, run.start), min(taken.end, run.end)
                api, detail = api_of(run.detail), run.detail
                self._ledger.add(Kind.INPUT, api, start, end=end, nbytes=taken.nbytes, detail=detail, line=run.line)
        self._taken, self._runs = [], []


def watch_profiler(patches: Patches, waits: Waits) -> None:
    """There is one profiler: whoever else wants it gets it."""
    make = partial(_after_stopping, waits)
    for owner in (profiler_v2, tf.profiler.experimental):
        patches.replace(owner, "start", make, api=API)
    patches.undo_with(waits.finish, api=API)


def _after_stopping(waits: Waits, original: Any) -> Any:
    def hook(*args: Any, **kwargs: Any) -> Any:
        waits.stop()
        return original(*args, **kwargs)

    return hook
