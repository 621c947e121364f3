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
        """Return the dtype of the framework's arrays for rows of `dtype`.

        It may be narrower: by default, JAX converts float64 to float32.
        """
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

    The counter reaches `value` when the device has done all work that was queued before the marker.
    """

    pointer: int  # device address of the counter
    value: int


class DeviceHandOff(HandOff, Protocol):
    """Wraps device memory in arrays of one framework; `HandOff.for_device` returns it.

    Some frameworks expose the CUDA stream on which they queue work; `stream` returns it. For a framework that hides its
    stream, `mark` queues a marker, and the streams of the engine wait for that marker. An event of the whole CUDA
    context would work for all frameworks, but recording such an event invalidates every CUDA graph capture in progress.

    A hand-off that also implements `ArrayOpsProvider` runs augmentations on the device.
    """

    index: int  # index of the GPU
    syncs_on_import: bool  # whether the framework itself waits for the rows when it makes an array of a root

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

        The pool must not reuse the memory of `owner` before that stream has finished its work. Return an object that
        keeps the stream alive.
        """
        ...

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the framework's array converted to another dtype."""
        ...

    def mark(self) -> StreamMarker:
        """Queue a marker on the framework's stream, and return it.

        The engine calls this method only if `stream` returns None.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """How the rows of a global batch are divided among the devices of several processes."""

    parts: int  # number of parts of this process's rows; each part is for one device, or for several with equal rows
    index: int  # index of this process's set of rows among the `count` sets
    count: int  # number of different sets of rows; several processes may get the same set
    processes: int  # number of processes that have devices


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
        """(devices, how they get their rows), the choice and the reason in `explain()`."""
        ...


@runtime_checkable
class CastingHandOff(Protocol):
    """A hand-off whose framework can run device transforms on arrays in host memory too."""

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

    A framework without this type receives `Ragged`.
    """

    def join_ragged(self, values: Any, offsets: Any) -> Any:
        """Join two arrays of the framework to its ragged array, without a copy.

        Row i is `values[offsets[i]:offsets[i + 1]]`.
        """
        ...


@runtime_checkable
class SparseHandOff(Protocol):
    """A device hand-off that makes dense rows from sparse rows.

    If a hand-off lacks this protocol, the host makes the rows dense.
    """

    def to_dense(self, values: Any, columns: Any, width: int) -> Any:
        """Return an array of rows with `width` numbers each.

        The number in row i and column `columns[i, j]` is `values[i, j]`; all remaining numbers are 0. If `columns[i]`
        has a column several times, its values are equal.
        """
        ...


@runtime_checkable
class SparseTensorHandOff(Protocol):
    """A hand-off to a framework with sparse tensors, for `batch(sparse=True)`."""

    def to_sparse(self, values: Any, columns: Any, counts: Any, width: int) -> Any:
        """Return a sparse tensor with `width` columns.

        Row i has the values `values[i, :counts[i]]` in the columns `columns[i, :counts[i]]`, which ascend.
        """
        ...


@runtime_checkable
class TracingHandOff(Protocol):
    """A hand-off to a framework that traces functions, such as JAX and TensorFlow."""

    def refuse_tracing(self) -> None:
        """Raise FeedError if the framework is tracing a function.

        The traced function would hold the batch as a constant. The feed calls this method before each batch that the
        consumer takes.
        """
        ...


def compact_rows(values: Any, columns: Any, counts: Any) -> tuple[Any, Any, Any]:
    """Return the arrays (values, columns, row starts) of a CSR matrix in host memory.

    The arguments are those of `SparseTensorHandOff.to_sparse`, as NumPy arrays.
    """
    is_value = np.arange(values.shape[1]) < counts[:, None]
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    return values[is_value], columns[is_value], starts


def refuse_dtypes(framework: str, specs: Sequence[ArraySpec], names: Sequence[str], supported_kinds: str) -> None:
    """Raise SpecError for the first dtype that the framework lacks.

    `supported_kinds` lists NumPy dtype kinds, such as "biufc". No framework supports structured dtypes, or numbers
    wider than 64 bits (128 bits if complex).
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
                "such as float32 (in a map, for example), remove it from the tree, or use feed('numpy')."
            )
