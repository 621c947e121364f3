"""The hand-off protocol: a hand-off turns slot memory into a framework's arrays without a copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import SpecError

__all__ = [
    "BatchSplit",
    "CastingHandOff",
    "DeviceHandOff",
    "FinishingHandOff",
    "HandOff",
    "PlacedHandOff",
    "RaggedTarget",
    "SparseHandOff",
    "SparseTensorHandOff",
    "StreamMarker",
    "TracingHandOff",
    "compact_rows",
    "refuse_dtypes",
]


class HandOff(Protocol):
    """Wraps host memory in arrays of one framework."""

    @property
    def name(self) -> str: ...
    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which the framework holds `dtype`. It may be narrower."""
        ...

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Raise SpecError for a dtype that the framework lacks.

        The feed calls this method before it starts any thread.
        """
        ...

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        """Return one array for each root.

        Each array refers to the lease object of its root (`SlotMemory.lease_object`) as long as the array lives.
        """
        ...

    def for_device(self, index: int | None) -> "DeviceHandOff":
        """Return the hand-off for one GPU; None selects the framework's default GPU.

        Raise DeviceError if the framework sees no such GPU.
        """
        ...


@dataclass(frozen=True, slots=True)
class StreamMarker:
    """A value of a counter in device memory.

    The counter reaches `value` when all work queued before the marker is done.
    """

    pointer: int  # device address of the counter
    value: int


class DeviceHandOff(HandOff, Protocol):
    """Wraps device memory in arrays of one framework; `HandOff.for_device` returns it.

    Some frameworks expose the CUDA stream on which they queue work; `stream` returns it. For the other frameworks,
    `mark` queues a marker, and the streams of the engine wait for that marker. A CUDA event of the whole context would
    work for all frameworks, but recording one invalidates every CUDA graph capture in progress.

    A device hand-off may have the method `array_ops` too (see `ArrayOpsProvider`), for augmentations on the device.
    """

    index: int  # of the GPU
    syncs_on_import: bool  # whether the framework waits for the rows itself when it imports a root

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Allocate device memory from the framework's pool; return its address and its owner.

        The memory stays allocated while the owner is referenced. Work that the framework queued earlier may still use
        this memory, so the engine orders its own work behind the framework's work.
        """
        ...

    def available(self, free: int, total: int) -> int:
        """Return how many bytes the framework can still allocate.

        `free` and `total` are the bytes that the driver reports.
        """
        ...

    def stream(self) -> int | None:
        """Return the handle of the calling thread's current stream; None if the framework hides it."""
        ...

    def record_stream(self, owner: Any) -> Any:
        """Tell the framework's pool that the calling thread's current stream uses memory from `allocate`.

        The pool must not reuse the memory before that stream has finished its work. Return an object that keeps the
        stream alive.
        """
        ...

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the framework's array converted to another dtype."""
        ...

    def mark(self) -> StreamMarker:
        """Queue a marker after all work that was queued before.

        The engine calls this only if `stream` returns None.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """How the rows of a global batch are divided among the devices of several processes."""

    parts: int  # parts of this process's rows, each for one device or for several that get the same rows
    index: int  # index of this process's set of rows among the `count` sets
    count: int  # different sets of rows of the processes; several processes may have the same set
    processes: int  # processes that have devices


class PlacedHandOff(HandOff, Protocol):
    """A hand-off for several devices, described by a framework's object such as a sharding."""

    @property
    def split(self) -> BatchSplit: ...
    @property
    def gpu_index(self) -> int | None:
        """Index of the GPU whose memory the slots use; None if they use host memory."""
        ...

    @property
    def description(self) -> tuple[str, str]:
        """The devices, and how they get their rows, for `explain()`."""
        ...


@runtime_checkable
class CastingHandOff(Protocol):
    """A hand-off whose framework can run device transforms, wherever its arrays are."""

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the framework's array converted to another dtype."""
        ...


@runtime_checkable
class FinishingHandOff(Protocol):
    """A device hand-off that changes the arrays after the device transforms."""

    def finish(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the arrays that the consumer receives."""
        ...


@runtime_checkable
class RaggedTarget(Protocol):
    """A hand-off to a framework that has its own type for rows of different length.

    The other frameworks receive `Ragged`.
    """

    def join_ragged(self, values: Any, offsets: Any) -> Any:
        """Return the framework's ragged array of these arrays of the framework, without a copy."""
        ...


@runtime_checkable
class SparseHandOff(Protocol):
    """A device hand-off that makes dense rows from sparse rows.

    With another hand-off, the host makes them dense.
    """

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        """Return rows of `width` numbers.

        The number in row i and column `columns[i, j]` is `values[i, j]`; all other numbers are 0. If a row has
        several values of one column, these values are equal.
        """
        ...


@runtime_checkable
class SparseTensorHandOff(Protocol):
    """A hand-off to a framework with sparse tensors, for `batch(sparse=True)`."""

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        """Return a sparse tensor with `width` columns.

        Row i has the first `counts[i]` of `values[i]`, at `columns[i]`. The columns of a row increase.
        """
        ...


@runtime_checkable
class TracingHandOff(Protocol):
    """A hand-off to a framework that traces functions, such as JAX and TensorFlow."""

    def refuse_tracing(self) -> None:
        """Raise FeedError while the framework traces a function, which would hold a batch as a constant.

        The feed calls this before each batch that the consumer takes.
        """
        ...


def compact_rows(values: Any, columns: Any, counts: Any) -> tuple[Any, Any, Any]:
    """Return the three arrays of a CSR matrix in host memory: values, columns, row starts.

    The arguments are those of `SparseTensorHandOff.to_sparse`, as NumPy arrays.
    """
    is_value = np.arange(values.shape[1]) < counts[:, None]
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    return values[is_value], columns[is_value], starts


def refuse_dtypes(framework: str, specs: Sequence[ArraySpec], names: Sequence[str], supported_kinds: str) -> None:
    """Raise SpecError for the first dtype that the framework lacks.

    `supported_kinds` lists NumPy dtype kinds, such as "biufc". Structured dtypes and numbers wider than 64 bits
    (128 bits if complex) are refused too.
    """
    for spec, name in zip(specs, names, strict=True):
        max_itemsize = 16 if spec.dtype.kind == "c" else 8
        if (
            spec.dtype.kind not in supported_kinds
            or spec.dtype.fields is not None
            or spec.dtype.itemsize > max_itemsize
        ):
            raise SpecError(
                f"{name!r} is {spec}, which {framework} cannot take from NumPy. Convert it to a plain numeric dtype "
                "such as float32, remove it from the tree, or use feed('numpy')."
            )
