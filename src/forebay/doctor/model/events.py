"""What the doctor writes down: an event for each thing worth naming, and the line of the user's that did it. Pure.

Details are plain values, named the same in every framework; each is left out where it is not known:

    upload    device, dtype, shape, key (the same for the same data), from_dtype (before the call), pinned, non_blocking
    download  device, dtype, shape
    move      op, source and target (devices), dtype, shape, timed (False inside a graph, which does not tell)
    input     loader (DataLoader, tf.data, arrays, generator, forebay), workers, pinned, prefetch, batch_rows, mapped_at
              (the line that maps rows one at a time); bytes of the batch
    prepare   what (row, collate, map, generator)
    compile   function, reason (first, shape, dtype, value), signature
    build     what (Dataset, Session, DataLoader, function, iterator), and what rules ask of it: shuffle_rows, prefetch,
              workers, fit (which one made an iterator)
    run       function, first (of a session, which prepares its graph then)
    transform function
    ops       count, tiny (how many of them took less than a launch does), calling_seconds (of Python between them)
"""

from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["FEED", "LOOP_MARKS", "Event", "Kind", "Line"]

FEED = "a forebay feed"  # what a wait for one of our own is called


class Kind(StrEnum):
    """What happened."""

    UPLOAD = "upload"  # an array of NumPy's or Python's became the framework's, or crossed to a device
    DOWNLOAD = "download"  # a value came back to the host; whoever asked for it waited
    MOVE = "move"  # a framework moved an array between devices, because an operation was placed elsewhere
    INPUT = "input"  # the loop waited for its next batch
    PREPARE = "prepare"  # the user's own code inside an input pipeline: a dataset's row, a map, a generator
    COMPILE = "compile"  # a function was traced or compiled
    BUILD = "build"  # something that is meant to live long was made: a pipeline, a session, a loader, a function
    RUN = "run"  # a compiled function ran: tf.function, jit, torch.compile, a session
    TRANSFORM = "transform"  # what jax.grad or jax.vmap made of a function ran, operation by operation
    OPS = "ops"  # operations ran one by one; how many is in the details
    SYNC = "sync"  # a wait for the device that was asked for
    STEP = "step"  # a training step ended

    __hash__ = str.__hash__  # an enumeration's own is Python, and asked several times for every event


# What comes once a step, the surest first; uploads and reads may come several times.
LOOP_MARKS: tuple[frozenset[Kind], ...] = (
    frozenset({Kind.STEP}),
    frozenset({Kind.INPUT}),
    frozenset({Kind.RUN}),
    frozenset({Kind.TRANSFORM}),
    frozenset({Kind.UPLOAD, Kind.DOWNLOAD, Kind.SYNC}),
    frozenset({Kind.MOVE}),
)


class Line(NamedTuple):
    """A line of the user's."""

    file: str
    number: int
    function: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class Event(NamedTuple):
    """One thing that happened. Times are nanoseconds of a clock that only goes forward."""

    kind: str
    api: str  # as the user would write it: tf.convert_to_tensor, Tensor.item, DataLoader
    line: int  # which line; -1 where none of the user's was on the stack
    thread: int
    start: int
    end: int
    nbytes: int = 0
    detail: dict[str, Any] | None = None  # plain values: dtype, shape, device, pinned, key, count, ...

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9
