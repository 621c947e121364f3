"""What every framework's results have in common: copies that arrive later, and which file knows how to make them."""

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["Arrived", "Fetcher", "Pending", "Together", "fetch_grouped", "framework_of", "module_of", "unwrap"]

_Key = TypeVar("_Key", bound=Hashable)

_FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "jax": "jax", "jaxlib": "jax", "tensorflow": "tensorflow"}
_FRAMEWORKS |= {"cupy": "cupy"}
_SCALARS = (bool, int, float, complex)


class Pending(Protocol):
    """Results on their way to the host."""

    @property
    def arrived(self) -> bool: ...
    def take(self) -> list[Array]:
        """The results as arrays of the caller's own, waited for; asked once."""
        ...


class Fetcher(Protocol):
    """One framework's way to bring results back, with what it reuses from one to the next."""

    def __init__(self, limit: int) -> None:
        """At most so many fetches are under way at a time."""
        ...

    def fetch(self, leaves: Sequence[Any]) -> Pending:
        """Start to copy these results as they are at this point of the program, and do not wait."""
        ...

    def close(self) -> None:
        """Give back what was reused; everything has been taken."""
        ...


class Arrived:
    """Results that are on the host already."""

    __slots__ = ("_arrays",)

    arrived = True

    def __init__(self, arrays: list[Array]) -> None:
        self._arrays = arrays

    def take(self) -> list[Array]:
        return self._arrays


class Together:
    """Results that arrive in parts; each part says which places it fills."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[list[int], Pending]]) -> None:
        self._parts = parts

    @property
    def arrived(self) -> bool:
        return all(pending.arrived for _, pending in self._parts)

    def take(self) -> list[Array]:
        found: dict[int, Array] = {}
        for places, pending in self._parts:
            found.update(zip(places, pending.take(), strict=True))
        return [found[place] for place in range(len(found))]


def fetch_grouped(
    leaves: Sequence[Any], key: Callable[[Any], _Key], fetch: Callable[[_Key, list[Any]], Pending]
) -> Pending:
    """Fetch leaves that belong together by one call each."""
    groups: dict[_Key, list[int]] = {}
    for place, leaf in enumerate(leaves):
        groups.setdefault(key(leaf), []).append(place)
    parts = [(places, fetch(group, [leaves[place] for place in places])) for group, places in groups.items()]
    return parts[0][1] if len(parts) == 1 else Together(parts)


def unwrap(leaf: Any) -> Any:
    """What a Keras variable holds; anything else as it is."""
    return leaf.value if type(leaf).__module__.partition(".")[0] == "keras" and hasattr(leaf, "value") else leaf


def framework_of(leaf: Any) -> str:
    """The framework an array belongs to, without importing any."""
    kind: Any = type(leaf)
    name = _framework_of_kind(kind)
    if name is None or not (kind in _SCALARS or hasattr(leaf, "shape")):  # models are a framework's, too
        raise SpecError(
            f"a {kind.__name__} is no array of NumPy, PyTorch, JAX, TensorFlow or CuPy: pass arrays, numbers, "
            "dicts and tuples of them, or lists of arrays."
        )
    return name


@cache
def _framework_of_kind(kind: type) -> str | None:
    if kind in _SCALARS:
        return "numpy"
    names = (_FRAMEWORKS.get(base.__module__.partition(".")[0]) for base in kind.__mro__)
    return next(filter(None, names), None)


@cache
def module_of(framework: str) -> Any:
    """The file of this folder that knows the framework; its user has imported the framework before."""
    return import_module(f"forebay.adapters.readback.{framework}")
