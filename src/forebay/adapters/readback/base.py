"""Read-back code that all frameworks share: pending copies, and the choice of a framework's module."""

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = [
    "CompletedCopy",
    "HostCopier",
    "PendingCopy",
    "PendingGroup",
    "framework_module",
    "framework_of",
    "start_grouped_copies",
    "unwrap_variable",
]

_Key = TypeVar("_Key", bound=Hashable)

_FRAMEWORKS = {
    "numpy": "numpy",
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "tensorflow": "tensorflow",
    "cupy": "cupy",
}
_SCALARS = (bool, int, float, complex)


class PendingCopy(Protocol):
    """A copy of results to the host that may still run."""

    @property
    def has_arrived(self) -> bool: ...
    def take(self) -> list[Array]:
        """Wait for the results and return them as new arrays. Call this once."""
        ...


class HostCopier(Protocol):
    """Copies results of one framework to the host. It reuses memory and streams for later copies."""

    def __init__(self, limit: int) -> None:
        """Prepare for at most `limit` copies at a time."""
        ...

    def start_copy(self, leaves: Sequence[Any]) -> PendingCopy:
        """Start to copy the current values of these results, and do not wait."""
        ...

    def close(self) -> None:
        """Release memory and streams. All results must have been taken."""
        ...


class CompletedCopy:
    """Results that are on the host already."""

    __slots__ = ("_arrays",)

    has_arrived = True

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays = arrays

    def take(self) -> list[Array]:
        return self._arrays


class PendingGroup:
    """Several copies for the leaves of one result. Each has the positions of its leaves."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[list[int], PendingCopy]]) -> None:
        self._parts = parts

    @property
    def has_arrived(self) -> bool:
        return all(pending.has_arrived for _, pending in self._parts)

    def take(self) -> list[Array]:
        found: dict[int, Array] = {}
        for positions, pending in self._parts:
            found.update(zip(positions, pending.take(), strict=True))
        return [found[position] for position in range(len(found))]


def start_grouped_copies(
    leaves: Sequence[Any], key: Callable[[Any], _Key], start_copy: Callable[[_Key, list[Any]], PendingCopy]
) -> PendingCopy:
    """Group leaves by their key and start one copy for each group."""
    groups: dict[_Key, list[int]] = {}
    for position, leaf in enumerate(leaves):
        groups.setdefault(key(leaf), []).append(position)
    parts = [
        (positions, start_copy(group, [leaves[position] for position in positions]))
        for group, positions in groups.items()
    ]
    return parts[0][1] if len(parts) == 1 else PendingGroup(parts)


def unwrap_variable(leaf: Any) -> Any:
    """Return the value of a Keras variable, and anything else unchanged."""
    return leaf.value if type(leaf).__module__.partition(".")[0] == "keras" and hasattr(leaf, "value") else leaf


def framework_of(leaf: Any) -> str:
    """Return the name of the framework of an array. This imports no framework."""
    kind: Any = type(leaf)
    name = _framework_of_type(kind)
    if name is None or not (kind in _SCALARS or hasattr(leaf, "shape")):  # a model has no shape, unlike an array
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
    """Import the module of this package for a framework. The caller has imported the framework itself."""
    return import_module(f"forebay.adapters.readback.{framework}")
