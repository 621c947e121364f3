"""The hand-off protocol: turns slot memory into a framework's own arrays without a copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import SpecError

__all__ = ["DeviceHandOff", "HandOff", "StreamMarker", "refuse_dtypes"]


class HandOff(Protocol):
    """Wraps host memory in arrays of one framework."""

    @property
    def name(self) -> str: ...
    def framework_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the framework's array, which may be narrower than `dtype`."""
        ...

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Raise SpecError for a dtype that the framework lacks.

        The feed calls this before anything runs.
        """
        ...

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        """Return one array for each root; each array references its root for its whole life."""
        ...

    def for_device(self, index: int | None) -> "DeviceHandOff":
        """Return the hand-off for one GPU; None selects the framework's default GPU.

        Raise DeviceError if the framework sees no such GPU.
        """
        ...


@dataclass(frozen=True, slots=True)
class StreamMarker:
    """A device counter that reaches `value` once all work queued before is done."""

    pointer: int
    value: int


class DeviceHandOff(HandOff, Protocol):
    """Wraps device memory in arrays of one framework; `HandOff.for_device` returns it.

    There are two kinds of frameworks. One kind exposes the stream it queues work on (`stream`). The other kind does
    not, and queues a marker instead (`mark`), which the streams of the engine wait for. A context-wide event would
    serve both kinds, but recording one invalidates any CUDA graph capture that runs at that moment.
    """

    index: int
    syncs_on_import: bool  # whether the framework itself waits for a root when it wraps it

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Allocate device memory from the framework's pool; return address and owner.

        The memory stays allocated while the owner is referenced. Work that the framework queued earlier may still use
        this memory. The streams of the engine wait for that work as they wait for any consumer's work.
        """
        ...

    def available(self, free: int, total: int) -> int:
        """Return the bytes the framework can still allocate, given the driver's free and total bytes."""
        ...

    def stream(self) -> int | None:
        """Return the current stream of the calling thread; None if the framework hides it."""
        ...

    def record_stream(self, owner: Any) -> Any:
        """Tell the framework's pool that its current stream uses memory from `allocate`.

        The pool must not reuse the memory before that stream is done with it. Return an object that keeps the stream
        alive.
        """
        ...

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return the framework's array converted to another dtype."""
        ...

    def mark(self) -> StreamMarker:
        """Queue a marker behind all work queued so far.

        The engine calls this only if `stream` returns None.
        """
        ...


def refuse_dtypes(framework: str, specs: Sequence[ArraySpec], names: Sequence[str], kinds: str) -> None:
    """Raise SpecError for the first dtype whose kind is not in `kinds`."""
    for spec, name in zip(specs, names, strict=True):
        widest = 16 if spec.dtype.kind == "c" else 8
        if spec.dtype.kind not in kinds or spec.dtype.fields is not None or spec.dtype.itemsize > widest:
            raise SpecError(
                f"{name!r} is {spec}, which {framework} cannot take from NumPy. Convert it to a plain numeric dtype "
                "such as float32, remove it from the tree, or use feed('numpy')."
            )
