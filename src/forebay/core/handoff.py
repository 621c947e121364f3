"""What a hand-off is: a slot's root in, the framework's own array over the same memory out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from forebay.core.spec import ArraySpec
from forebay.errors import SpecError

__all__ = ["DeviceHandOff", "HandOff", "Mark", "refuse_dtypes"]


class HandOff(Protocol):
    """One framework's way to take memory over."""

    @property
    def name(self) -> str: ...
    def held_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype the framework will hold: another one where it narrows."""
        ...

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Refuse what the framework has no type for, before anything runs."""
        ...

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        """The framework's arrays over these roots; each keeps its root referenced for as long as it lives."""
        ...

    def on_device(self, index: int | None) -> "DeviceHandOff":
        """The same for arrays on a GPU, the framework's own choice where none is named; refused where it sees none."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """A number in device memory that reaches `value` once all work the framework queued before it is done."""

    pointer: int
    value: int


class DeviceHandOff(HandOff, Protocol):
    """One framework's way to take device memory over, and what an engine must know of it; `on_device()` gives it.

    Two kinds of frameworks: those that say on which stream they queue work (`stream`), and those that do not, which
    queue a mark instead (`mark`) that our own streams wait for. A context-wide event would do for both, but it
    breaks whatever CUDA graph anybody is capturing at that moment.
    """

    index: int
    waits_on_import: bool  # whether taking a root over makes the framework wait for it by itself

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """Device memory of the framework's own pool: where it is, and what must be kept for as long as it is used.

        Whatever the framework queued before may still use it; our streams wait for that like for any consumer's work.
        """
        ...

    def available(self, free: int, total: int) -> int:
        """Bytes the framework could still give, where the driver has so many free for anybody."""
        ...

    def stream(self) -> int | None:
        """The stream on which the calling thread queues its work at this moment; None where it does not say."""
        ...

    def keep_for(self, owner: Any) -> Any:
        """Memory of `allocate` is used on that stream from now on: its pool must not give it to others before that is
        done. Returns what keeps the stream from being destroyed while it is remembered."""
        ...

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """The framework's array in another dtype."""
        ...

    def mark(self) -> Mark:
        """Queue a mark behind everything queued so far; only asked where there is no stream."""
        ...


def refuse_dtypes(framework: str, specs: Sequence[ArraySpec], names: Sequence[str], kinds: str) -> None:
    """Refuse dtypes whose kind is not among those the framework can hold."""
    for spec, name in zip(specs, names, strict=True):
        widest = 16 if spec.dtype.kind == "c" else 8
        if spec.dtype.kind not in kinds or spec.dtype.fields is not None or spec.dtype.itemsize > widest:
            raise SpecError(
                f"{framework} takes no {spec} from NumPy, which is what {name!r} holds. Convert it to plain numbers, "
                "such as float32, before or in a map, leave it out of the tree, or feed('numpy')."
            )
