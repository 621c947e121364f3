"""Ledger events: framework calls, each with the line of the script that made it.

`LedgerEvent.detail` contains JSON values. The keys are the same for all frameworks. A hook omits values that it does
not know. A "line" in this list is an index into `Capture.lines`. The keys by event kind:

    upload    device, dtype, shape, key (equal for equal data), from_dtype (dtype before the upload), pinned (whether
              the data is in page-locked memory), non_blocking, copied (False if the array shares the memory of its
              data), implied (True if an operation such as `tensor + array` converted the data), pieces (number of
              NumPy arrays in a list that the call joins)
    download  device, dtype, shape, copied (False if the data was on the host already)
    move      op, source and target (devices), dtype, shape, timed (False inside a graph, where the time is unknown)
    input     loader (DataLoader, tf.data, arrays, generator, forebay), workers, pinned, prefetch (batches that the
              loader makes in advance), batch_rows, built_at (line that built the loader), mapped_at (line of a map
              without parallel calls), row_map (line of a map before `batch`), estimated (True if the doctor did not
              measure this wait, but estimated it from other calls of the same `tf.function`), runnable (seconds of
              the wait in which the thread ran or waited for a core, and was not blocked, for example by a file);
              `nbytes` is the size of the batch
    prepare   what (row, collate, map, generator), count (number of calls or rows)
    compile   function, reason (first, or what has changed: shape, dtype, value), signature, constants_nbytes (of arrays
              in the graph), flops (of the products in the graph), graph_break and break_reason (line and reason of the
              graph break after which PyTorch compiles)
    build     what (such as Dataset, Session, Model, function, iterator), function (its name), dtype, device,
              constants_nbytes, shuffle_rows, prefetch, workers, pinned, persistent (whether workers stay alive),
              batch_rows, mapped_at (as for "input"), fit (number of the `fit` call that created the iterator).
              A PyTorch module: source and moved_nbytes, if its device changes.
              A Keras model: jit_compile, run_eagerly, steps_per_execution.
              A DataLoader: dataset_rows, random_rows (whether the code that makes a row seems to draw random numbers),
              rows_at (line of this code), generators (random number generators that the dataset holds), stream (for a
              dataset without row numbers: "divided" if worker processes divide its rows, "whole" if each worker process
              yields all rows)
    run       function, first (True for the first run of a session, which also prepares the graph)
    step      optimizer (its class), fused, channels_last (layout of the filters); only in the first event
    transform function
    ops       count, tiny (number of very short operations), calling_seconds (Python time between operations),
              small and small_seconds (number of operations on small tensors, and the time inside them)

An event of kind "setting" lasts from the time when the script switched a debug setting on until the script switched it
off or profiling ended. Its `api` is a value of `model.debug_settings.DebugSetting`. Its line switched the setting on.
"""

from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "CELL_PREFIX",
    "FEED_API",
    "LOOP_MARKS",
    "PYTHON_CODE",
    "STORED_STACK",
    "EventKind",
    "HostSample",
    "LedgerEvent",
    "Line",
]

FEED_API = "a forebay feed"  # `LedgerEvent.api` of a wait for a batch of a feed
CELL_PREFIX = "Cell In["  # `Line.file` of a notebook cell starts with it, and the number of the cell follows
PYTHON_CODE = "Python"  # `HostSample.function` of a line that executes its own bytecode and calls no function
STORED_STACK = "torch.fx.traceback.format_stack"  # `HostSample.function` while PyTorch's anomaly mode stores the stack


class EventKind(StrEnum):
    """The kind of a ledger event."""

    UPLOAD = "upload"  # a framework array was made from host data, or data was copied to a device
    DOWNLOAD = "download"  # a value was read back to the host, and the caller waited for it
    MOVE = "move"  # an array was copied between devices, for example to the device that runs an operation
    INPUT = "input"  # the loop waited for its next batch
    PREPARE = "prepare"  # user code in an input pipeline ran: a dataset row, a map, a generator
    COMPILE = "compile"  # a function was traced or compiled
    BUILD = "build"  # a long-lived object was created: a pipeline, a session, a loader, a function
    RUN = "run"  # a compiled function ran: tf.function, jit, torch.compile, a session
    TRANSFORM = "transform"  # a function made by jax.grad or jax.vmap ran operation by operation
    OPS = "ops"  # operations ran one by one; `detail` contains their number
    SYNC = "sync"  # the script waited for the device explicitly
    STEP = "step"  # a training step ended
    CALLBACK = "callback"  # a compiled function called a Python function, on any thread
    SETTING = "setting"  # a debug setting was on

    __hash__ = str.__hash__  # fast; Enum.__hash__ is Python code, and every event is hashed several times


# Event kinds that can mark the end of a step, the most reliable first. Less reliable ones may occur often in a step.
LOOP_MARKS: tuple[frozenset[EventKind], ...] = (
    frozenset({EventKind.STEP}),
    frozenset({EventKind.INPUT}),
    frozenset({EventKind.RUN}),
    frozenset({EventKind.TRANSFORM}),
    frozenset({EventKind.UPLOAD, EventKind.DOWNLOAD, EventKind.SYNC}),
    frozenset({EventKind.MOVE}),
)


class Line(NamedTuple):
    """A line of user code."""

    file: str  # a path, or the name of a notebook cell
    number: int
    function: str  # name of the function that contains the line
    text: str = ""  # source text; empty with --no-source or if unknown

    @property
    def is_in_cell(self) -> bool:
        """Whether the line is in a notebook cell."""
        return self.file.startswith(CELL_PREFIX)

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}" if self.is_in_cell else f"{self.file}:{self.number}"


class LedgerEvent(NamedTuple):
    """One framework call. Times are nanoseconds of a monotonic clock."""

    kind: str  # a value of EventKind
    api: str  # the call as the user writes it: tf.convert_to_tensor, Tensor.item, DataLoader
    line: int  # index into `Capture.lines`; -1 if no user code was on the stack
    thread: int  # thread id
    start: int
    end: int
    nbytes: int = 0  # size of the data that the call handled
    detail: dict[str, Any] | None = None  # see the docstring of this module

    @property
    def site(self) -> tuple[str, str, int]:
        """Kind, API and line. Events of one call site have the same values."""
        return self[:3]

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9


class HostSample(NamedTuple):
    """The line that a thread executed at one time, even if no hook recorded a call.

    `time` uses the clock of the events.
    """

    time: int
    nanoseconds: int  # time since the previous sample; this sample stands for all of it
    thread: int  # thread id
    line: int  # index into `Capture.lines`: the innermost line of the script
    function: str = ""  # the function that the line was calling; PYTHON_CODE if it called none; empty if unknown
