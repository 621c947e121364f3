"""Waits for a batch inside a compiled function, where no Python hook runs, read from TensorFlow's host trace.

`Model.fit` passes its iterator to a compiled function that reads the batches itself, and so do fast custom loops. The
trace covers a window of such calls and costs less than a microsecond for every operation in them.
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import tensorflow as tf
from tensorflow.python.profiler import profiler_v2

from forebay.doctor.capture.hooks.calls import run_guarded
from forebay.doctor.capture.hooks.tensorflow.pipelines import Pipelines, api_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["WARM_UP_CALLS", "InputWaits", "hook_profiler"]

WARM_UP_CALLS = 5  # calls that trace the function and warm up
MAX_CALLS = 150
MAX_NS = 15_000_000_000
API = "waits inside compiled functions"
# Imported on first use, because its private imports differ between versions of TensorFlow.
_HOST_TRACE = "forebay.doctor.capture.hooks.tensorflow.host_trace"


@dataclass(frozen=True, slots=True)
class _ReadingCall:
    """A call of a compiled function that reads batches."""

    start: int
    end: int
    line: int
    detail: dict[str, Any]


class InputWaits:
    """Traces a window of calls and records the waits inside them."""

    def __init__(self, ledger: Ledger, pipelines: Pipelines) -> None:
        self._ledger, self._pipelines = ledger, pipelines
        self._call_count = 0
        self._calls: list[_ReadingCall] = []
        self._trace: Any = None
        self._reads: list[Any] = []
        self._is_done = False

    def on_call(self, iterator: Any, start: int, end: int) -> None:
        """Take a call of a compiled function with an iterator argument."""
        line = self._ledger.lines.current_line()
        if self._is_done or line < 0:
            return
        self._call_count += 1
        if self._trace is not None:
            dataset = getattr(iterator, "_dataset", None)  # a distributed iterator has none
            detail = self._pipelines.describe(dataset) if dataset is not None else {"loader": "tf.data"}
            self._calls.append(_ReadingCall(start, end, line, detail))
            self.stop_if_due(end)
        elif self._call_count == WARM_UP_CALLS:
            self._start()

    def stop_if_due(self, now: int) -> None:
        """Stop the trace at its limits, whatever the script does next."""
        trace = self._trace
        if trace is not None and (now - trace.start > MAX_NS or len(self._calls) >= MAX_CALLS):
            self.stop()

    def stop(self) -> None:
        """Stop the trace and keep its reads."""
        trace, self._trace, self._is_done = self._trace, None, True
        if trace is not None:
            run_guarded(self._ledger, API, lambda: self._reads.extend(trace.stop()))

    def finish(self) -> None:
        """Write the events at the end of profiling, because late events must not look like new steps."""
        self.stop()
        run_guarded(self._ledger, API, self._write)

    def _start(self) -> None:
        try:
            self._trace = import_module(_HOST_TRACE).HostTrace()
        except Exception as error:  # another profiler is running, or another version of TensorFlow
            self._is_done = True
            self._ledger.note(f"{API} are not recorded: {type(error).__name__}: {error}")

    def _write(self) -> None:
        """Assign each read to the call that contains it. Other reads are recorded by the hooks of iterators."""
        calls = iter(self._calls)
        call = next(calls, None)
        for read in self._reads:
            middle = (read.start + read.end) // 2
            while call is not None and call.end < middle:
                call = next(calls, None)
            if call is not None and call.start <= middle:
                start, end = max(read.start, call.start), min(read.end, call.end)
                api, detail = api_of(call.detail), call.detail
                self._ledger.add(
                    EventKind.INPUT, api, start, end=end, nbytes=read.nbytes, detail=detail, line=call.line
                )
        self._reads, self._calls = [], []


def hook_profiler(patches: Patches, waits: InputWaits) -> None:
    """Stop our trace when the script starts the profiler, because TensorFlow allows only one."""
    make = partial(_stop_before_start, waits)
    for owner in (profiler_v2, tf.profiler.experimental):
        patches.replace(owner, "start", make, api=API)
    patches.add_undo(waits.finish, api=API)


def _stop_before_start(waits: InputWaits, original: Any) -> Any:
    def hook(*args: Any, **kwargs: Any) -> Any:
        waits.stop()
        return original(*args, **kwargs)

    return hook
