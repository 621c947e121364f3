"""What the read-back code of all frameworks shares: protocols, copies and helper functions."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = [
    "CompletedCopy",
    "DeviceArray",
    "HostCopier",
    "PendingCopy",
    "PendingCopies",
    "framework_module",
    "framework_of",
    "start_grouped_copies",
    "unwrap_variable",
]

_Key = TypeVar("_Key", bound=Hashable)

_FRAMEWORKS = {  # top-level package of an array's type -> module of this package
    "numpy": "numpy",
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "tensorflow": "tensorflow",
    "cupy": "cupy",
}
_SCALARS = (bool, int, float, complex)


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A contiguous array on a device, and the object that owns its memory."""

    pointer: int  # device address
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class PendingCopy(Protocol):
    """A copy of arrays to the host that may still run."""

    @property
    def has_arrived(self) -> bool: ...
    def take(self) -> list[Array]:
        """Wait for the copy, and return its NumPy arrays. Call this only once."""
        ...


class HostCopier(Protocol):
    """Copies arrays of one framework to the host.

    It may reuse memory and streams for several copies.
    """

    def __init__(self, max_copies: int) -> None:
        """Prepare for at most `max_copies` pending copies at a time."""
        ...

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        """Start to copy the current values of arrays, without waiting."""
        ...

    def close(self) -> None:
        """Release memory and streams. Call this only after `take` of all copies."""
        ...


class CompletedCopy:
    """A copy of arrays on the host, which was complete at once."""

    __slots__ = ("_arrays",)

    has_arrived = True

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays = arrays

    def take(self) -> list[Array]:
        return self._arrays


class PendingCopies:
    """Several copies that together contain the leaves of one result."""

    __slots__ = ("_copies",)

    def __init__(self, copies: Sequence[tuple[list[int], PendingCopy]]) -> None:
        """Each item of `copies` has the positions of leaves in the result, and their copy."""
        self._copies = copies

    @property
    def has_arrived(self) -> bool:
        return all(pending.has_arrived for _, pending in self._copies)

    def take(self) -> list[Array]:
        arrays_by_position: dict[int, Array] = {}
        for positions, pending in self._copies:
            arrays_by_position.update(zip(positions, pending.take(), strict=True))
        return [arrays_by_position[position] for position in range(len(arrays_by_position))]


def start_grouped_copies(
    leaves: Sequence[Any], key: Callable[[Any], _Key], start_copy: Callable[[_Key, list[Any]], PendingCopy]
) -> PendingCopy:
    """Start one copy for all leaves with the same key, such as their device.

    Return a `PendingCopy` that has the leaves in their original order.
    """
    positions_by_key: dict[_Key, list[int]] = {}
    for position, leaf in enumerate(leaves):
        positions_by_key.setdefault(key(leaf), []).append(position)
    copies = [
        (positions, start_copy(leaf_key, [leaves[position] for position in positions]))
        for leaf_key, positions in positions_by_key.items()
    ]
    return copies[0][1] if len(copies) == 1 else PendingCopies(copies)


def unwrap_variable(leaf: Any) -> Any:
    """Return the value of a Keras variable, or any other leaf unchanged."""
    return leaf.value if type(leaf).__module__.partition(".")[0] == "keras" and hasattr(leaf, "value") else leaf


def framework_of(leaf: Any) -> str:
    """Return the name of an array's framework, without importing the framework.

    Raise SpecError if the leaf is neither an array nor a number.
    """
    kind: Any = type(leaf)
    name = _framework_of_type(kind)
    if name is None or not (kind in _SCALARS or hasattr(leaf, "shape")):  # models have no shape
        raise SpecError(
            f"a {kind.__name__} is not an array of NumPy, PyTorch, JAX, TensorFlow or CuPy. Pass arrays, numbers, "
            "dicts and tuples of them, or lists of arrays."
        )
    return name


@cache
def _framework_of_type(kind: type) -> str | None:
    if kind in _SCALARS:
        return "numpy"
    names = (_FRAMEWORKS.get(base.__module__.partition(".")[0]) for base in kind.__mro__)
    return next(filter(None, names), None)


@cache
def framework_module(framework: str) -> Any:
    """Import and return the read-back module of a framework."""
    return import_module(f"forebay.adapters.readback.{framework}")
