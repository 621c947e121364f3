"""Waits for batches inside compiled functions, read from TensorFlow's host trace.

`Model.fit` and fast custom loops pass an iterator to a compiled function, which reads the batches without Python, so
that no hook runs. A trace makes such a call up to 50 % longer, so it covers only a few calls outside the profiled
steps: some calls of the warm-up, and the calls of some steps after the profiled steps. The doctor assumes that the
other calls of a function wait for the same shares of their time. If both traces contain calls of the function, it uses
the shares of the later trace.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

import tensorflow as tf
from tensorflow.python.profiler import profiler_v2

from forebay.doctor.capture.hooks.calls import HookedCall, run_guarded
from forebay.doctor.capture.hooks.tensorflow.pipelines import Pipelines, api_of
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.redaction import describe_error

__all__ = ["EARLY_CALLS", "WARM_UP_CALLS", "InputWaits", "hook_profiler"]

WARM_UP_CALLS = 3  # calls before the first trace; in them, TensorFlow compiles the function
EARLY_CALLS = 6  # traced calls of the warm-up; they end before the profiled steps, which start at the eleventh call
MAX_CALLS = 150  # the trace after the profiled steps stops after this many traced calls
MAX_NS = 15_000_000_000  # every trace stops after 15 s
MAX_RATIO = 3  # a call that takes this many times as long as the longest traced call does other work: it gets no waits
KEPT_CALLS = 20_000  # latest calls without a trace; earlier calls get no waits
API = "waits inside compiled functions"
# The module `host_trace` is imported on first use, because some versions of TensorFlow lack the private modules that it
# imports.
_HOST_TRACE = "forebay.doctor.capture.hooks.tensorflow.host_trace"


@dataclass(frozen=True, slots=True)
class _ReadingCall:
    """A call of a compiled function that reads batches. Times are nanoseconds."""

    function: int  # `id` of the function
    start: int
    end: int
    line: int  # index into `Capture.lines`
    detail: dict[str, Any]  # details of its input events
    trace: int = 0  # number of the trace that covers the call; 0: none

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _ReadShare:
    """A read of a batch as a part of its call."""

    start: float  # share of the call's time
    end: float  # share of the call's time
    nbytes: int


class InputWaits:
    """Traces a limited number of calls, and records the waits of all calls."""

    def __init__(self, ledger: Ledger, pipelines: Pipelines) -> None:
        self._ledger, self._pipelines = ledger, pipelines
        self._call_count = 0
        self._traced_calls: list[_ReadingCall] = []
        self._other_calls: deque[_ReadingCall] = deque(maxlen=KEPT_CALLS)
        self._trace: Any = None  # the running `HostTrace`
        self._trace_count = 0
        self._most_calls = EARLY_CALLS  # the running trace stops after this many calls
        self._reads: list[Any] = []  # `BatchRead` objects of the traces that have stopped
        self._is_refused = False  # a trace cannot start, or the script has started a profiler

    def on_call(self, call: HookedCall, iterator: Any, line: int) -> None:
        """Add a call of a compiled function with an iterator argument.

        `line` is an index into `Capture.lines`; -1: not user code, which is ignored. Start the first trace
        after WARM_UP_CALLS calls. Stop a trace that has reached a limit.
        """
        if line < 0:
            return
        self._call_count += 1
        dataset = getattr(iterator, "_dataset", None)  # a distributed iterator has none
        detail = self._pipelines.describe(dataset) if dataset is not None else {"loader": "tf.data"}
        trace = self._trace_count if self._trace else 0
        reading = _ReadingCall(id(call.args[0]), call.start, call.end, line, detail, trace)
        (self._traced_calls if trace else self._other_calls).append(reading)
        self.stop_trace_if_due(call.end)
        if self._call_count == WARM_UP_CALLS:
            self._start(EARLY_CALLS)

    def can_trace(self) -> bool:
        """Whether compiled functions read batches, so that a later trace is useful."""
        return self._call_count > WARM_UP_CALLS and not self._is_refused

    def start(self) -> None:
        """Start the trace after the profiled steps."""
        self.stop()
        self._start(MAX_CALLS)

    def stop_trace_if_due(self, now: int) -> None:
        """Stop the trace if it has reached a limit.

        Other hooks call this too, because the script may stop calling functions with an iterator.
        """
        trace = self._trace
        if trace is None:
            return
        calls = sum(call.trace == self._trace_count for call in self._traced_calls[-self._most_calls :])
        if now - trace.start > MAX_NS or calls >= self._most_calls:
            self.stop()

    def stop(self) -> None:
        """Stop the trace, if one is running, and store its reads."""
        trace, self._trace = self._trace, None
        if trace is not None:
            run_guarded(self._ledger, API, lambda: self._reads.extend(trace.stop()))

    def refuse(self) -> None:
        """Stop the trace and start no more traces, because the script uses a profiler."""
        self.stop()
        self._is_refused = True

    def finish(self) -> None:
        """Stop the trace and write the events of all calls.

        Call this when profiling ends. Earlier, the step detector would receive these old events between new ones.
        """
        self.stop()
        run_guarded(self._ledger, API, self._write)

    def _start(self, most_calls: int) -> None:
        if self._is_refused:
            return
        try:
            self._trace = import_module(_HOST_TRACE).HostTrace()
        except Exception as error:  # another profiler is running, or a module is missing in this version
            self._is_refused = True
            self._ledger.note(f"{API} are not recorded: {describe_error(error)}")
        else:
            self._trace_count, self._most_calls = self._trace_count + 1, most_calls

    def _write(self) -> None:
        """Write an event for each read of a traced call, and for each estimated read.

        The reads of the calls without a trace are estimated from the traced calls of the same function.
        """
        reads_by_function: dict[int, list[list[_ReadShare]]] = {}
        latest: dict[int, int] = {}  # function -> its latest trace
        for call, reads in _match_reads(self._traced_calls, sorted(self._reads)):
            self._write_reads(call, reads)
            if latest.get(call.function) != call.trace:
                latest[call.function], reads_by_function[call.function] = call.trace, []
            reads_by_function[call.function].append(reads)
        templates = {function: cycle(reads) for function, reads in reads_by_function.items()}
        longest = {
            function: max(call.length for call in self._traced_calls if call.function == function)
            for function in templates
        }
        for call in self._other_calls:
            if call.length <= MAX_RATIO * longest.get(call.function, -1):
                self._write_reads(call, next(templates[call.function]), {"estimated": True})
        self._reads, self._traced_calls = [], []
        self._other_calls.clear()

    def _write_reads(self, call: _ReadingCall, reads: list[_ReadShare], facts: dict[str, Any] | None = None) -> None:
        for read in reads:
            start, end = (call.start + int(call.length * share) for share in (read.start, read.end))
            site = (EventKind.INPUT, api_of(call.detail), call.line)
            self._ledger.write(site, start, end, read.nbytes, detail=call.detail | (facts or {}))


def _match_reads(calls: list[_ReadingCall], reads: list[Any]) -> list[tuple[_ReadingCall, list[_ReadShare]]]:
    """Return each call with its reads. `calls` and `reads` are in order of time.

    A read belongs to the call that contains the middle of the read. The hooks of iterators record all other reads.
    """
    matched: list[tuple[_ReadingCall, list[_ReadShare]]] = [(call, []) for call in calls]
    position = 0
    for read in reads:
        middle = (read.start + read.end) // 2
        while position < len(calls) and calls[position].end < middle:
            position += 1
        if position < len(calls) and calls[position].start <= middle:
            call = calls[position]
            length = max(1, call.length)
            shares = (
                (max(read.start, call.start) - call.start) / length,
                (min(read.end, call.end) - call.start) / length,
            )
            matched[position][1].append(_ReadShare(*shares, read.nbytes))
    return matched


def hook_profiler(patches: Patches, waits: InputWaits) -> None:
    """Stop the trace when the script starts a profiler: TensorFlow allows only one."""
    hook_start = partial(_hook_profiler_start, waits)
    for owner in (profiler_v2, tf.profiler.experimental):
        patches.replace(owner, "start", hook_start, api=API)
    patches.add_undo(waits.finish, api=API)
    patches.input_trace = waits


def _hook_profiler_start(waits: InputWaits, original: Any) -> Any:
    def hook(*args: Any, **kwargs: Any) -> Any:
        waits.refuse()
        return original(*args, **kwargs)

    return hook
