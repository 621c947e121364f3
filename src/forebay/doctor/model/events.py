"""Events of the API ledger: what happened in the script, and which of its lines caused it.

`LedgerEvent.detail` holds JSON values. Every framework uses the same keys; a hook leaves out what it does not know:

    upload    device, dtype, shape, key (equal for equal data), from_dtype (before the call), pinned, non_blocking
    download  device, dtype, shape
    move      op, source and target (devices), dtype, shape, timed (False: inside a graph, where it cannot be timed)
    input     loader (DataLoader, tf.data, arrays, generator, forebay), workers, pinned, prefetch, batch_rows, mapped_at
              (the line of a map that handles one row at a time); `nbytes` is the size of the batch
    prepare   what (row, collate, map, generator)
    compile   function, reason (first, shape, dtype, value), signature
    build     what (Dataset, Session, DataLoader, function, iterator), and facts that rules need: shuffle_rows,
              prefetch, workers, fit (the number of the `fit` that made an iterator)
    run       function, first (True for the first run of a session, which also prepares the graph)
    transform function
    ops       count, tiny (how many took less time than a launch), calling_seconds (Python time between them)
"""

from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["FEED_API", "LOOP_MARKS", "EventKind", "LedgerEvent", "Line"]

FEED_API = "a forebay feed"  # the API name of an event that waits for a batch of Forebay


class EventKind(StrEnum):
    """What happened."""

    UPLOAD = "upload"  # a NumPy or Python array became a framework array, or was copied to a device
    DOWNLOAD = "download"  # a value was read back to the host, and the caller waited for it
    MOVE = "move"  # a framework copied an array between devices for an operation on another device
    INPUT = "input"  # the loop waited for its next batch
    PREPARE = "prepare"  # user code inside an input pipeline ran: a dataset row, a map, a generator
    COMPILE = "compile"  # a function was traced or compiled
    BUILD = "build"  # a long-lived object was created: a pipeline, a session, a loader, a function
    RUN = "run"  # a compiled function ran: tf.function, jit, torch.compile, a session
    TRANSFORM = "transform"  # a function made by jax.grad or jax.vmap ran operation by operation
    OPS = "ops"  # operations ran one by one; `detail` holds their number
    SYNC = "sync"  # the script waited for the device explicitly
    STEP = "step"  # a training step ended

    __hash__ = str.__hash__  # Enum.__hash__ is Python code, and every event is hashed several times


# Kinds of events that occur once a step, the most reliable first. Uploads and reads may occur several times.
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

    file: str
    number: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class LedgerEvent(NamedTuple):
    """One event. Times are nanoseconds of a monotonic clock."""

    kind: str
    api: str  # as the user writes it: tf.convert_to_tensor, Tensor.item, DataLoader
    line: int  # index into `Capture.lines`; -1: no line of user code was on the stack
    thread: int
    start: int
    end: int
    nbytes: int = 0
    detail: dict[str, Any] | None = None  # JSON values: dtype, shape, device, pinned, key, count, ...

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9
