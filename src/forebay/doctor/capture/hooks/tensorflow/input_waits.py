"""Waits for batches inside compiled functions, read from TensorFlow's host trace.

`Model.fit` and fast custom loops pass an iterator to a compiled function, which reads the batches without Python, so
that no hook runs. The trace covers a limited number of such calls. It adds less than 1 us to each operation in them.
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
from forebay.doctor.model.redaction import describe_error

__all__ = ["WARM_UP_CALLS", "InputWaits", "hook_profiler"]

WARM_UP_CALLS = 5  # calls before the trace starts; they compile the function
MAX_CALLS = 150  # the trace stops after this many traced calls
MAX_NS = 15_000_000_000  # the trace stops after 15 s
API = "waits inside compiled functions"
# This module is imported on first use, because some versions of TensorFlow lack the private modules that it imports.
_HOST_TRACE = "forebay.doctor.capture.hooks.tensorflow.host_trace"


@dataclass(frozen=True, slots=True)
class _ReadingCall:
    """A call of a compiled function that reads batches. Times are nanoseconds."""

    start: int
    end: int
    line: int  # index of the user line
    detail: dict[str, Any]  # details of its input events


class InputWaits:
    """Traces a limited number of calls and records the waits inside them."""

    def __init__(self, ledger: Ledger, pipelines: Pipelines) -> None:
        self._ledger, self._pipelines = ledger, pipelines
        self._call_count = 0
        self._calls: list[_ReadingCall] = []  # traced calls
        self._trace: Any = None  # the running `HostTrace`
        self._reads: list[Any] = []  # `BatchRead` objects of the trace, after it has stopped
        self._is_done = False  # the trace has stopped or cannot start

    def on_call(self, iterator: Any, start: int, end: int) -> None:
        """Add a call of a compiled function with an iterator argument.

        Start the trace after WARM_UP_CALLS calls. Stop it if it has reached a limit.
        """
        line = self._ledger.lines.current_line()
        if self._is_done or line < 0:
            return
        self._call_count += 1
        if self._trace is not None:
            dataset = getattr(iterator, "_dataset", None)  # a distributed iterator has none
            detail = self._pipelines.describe(dataset) if dataset is not None else {"loader": "tf.data"}
            self._calls.append(_ReadingCall(start, end, line, detail))
            self.stop_trace_if_due(end)
        elif self._call_count == WARM_UP_CALLS:
            self._start()

    def stop_trace_if_due(self, now: int) -> None:
        """Stop the trace if it has reached a limit.

        Other hooks call this too, because the script may stop calling functions with an iterator.
        """
        trace = self._trace
        if trace is not None and (now - trace.start > MAX_NS or len(self._calls) >= MAX_CALLS):
            self.stop()

    def stop(self) -> None:
        """Stop the trace and store its reads."""
        trace, self._trace, self._is_done = self._trace, None, True
        if trace is not None:
            run_guarded(self._ledger, API, lambda: self._reads.extend(trace.stop()))

    def finish(self) -> None:
        """Stop the trace and write its events.

        Call this when profiling ends. Earlier, the step detector would receive these old events between new ones.
        """
        self.stop()
        run_guarded(self._ledger, API, self._write)

    def _start(self) -> None:
        try:
            self._trace = import_module(_HOST_TRACE).HostTrace()
        except Exception as error:  # another profiler is running, or a module is missing in this version
            self._is_done = True
            self._ledger.note(f"{API} are not recorded: {describe_error(error)}")

    def _write(self) -> None:
        """Write an event for each read inside a traced call.

        A read belongs to the call that contains the middle of the read. The hooks of iterators record all other reads.
        """
        calls = iter(self._calls)
        call = next(calls, None)
        for read in self._reads:
            middle = (read.start + read.end) // 2
            while call is not None and call.end < middle:
                call = next(calls, None)
            if call is not None and call.start <= middle:
                start, end = max(read.start, call.start), min(read.end, call.end)
                api, detail = api_of(call.detail), call.detail
                self._ledger.write((EventKind.INPUT, api, call.line), start, end, read.nbytes, detail=detail)
        self._reads, self._calls = [], []


def hook_profiler(patches: Patches, waits: InputWaits) -> None:
    """Stop our trace when the script starts a profiler, because TensorFlow allows only one."""
    hook_start = partial(_hook_profiler_start, waits)
    for owner in (profiler_v2, tf.profiler.experimental):
        patches.replace(owner, "start", hook_start, api=API)
    patches.add_undo(waits.finish, api=API)


def _hook_profiler_start(waits: InputWaits, original: Any) -> Any:
    def hook(*args: Any, **kwargs: Any) -> Any:
        waits.stop()
        return original(*args, **kwargs)

    return hook
