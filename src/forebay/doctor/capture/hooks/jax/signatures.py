"""What a jitted function is called with, and which part of it made JAX compile the function again."""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from jax import tree_util

__all__ = ["Argument", "Parameters", "Signature", "reason_for", "signature_of", "text_of"]

_LONGEST_TEXT = 200


class Parameters:
    """Of one jitted function: the names of its arguments, and which of them are static."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, bool]]:
        """What it is called with, by name, and whether the value is compiled in."""
        unnamed = (f"argument {position + 1}" for position in range(len(self._names), len(args)))
        names = (*self._names[: len(args)], *unnamed)
        static = self._static
        given = {name: (value, at in static) for at, (name, value) in enumerate(zip(names, args, strict=True))}
        return given | {name: (value, name in static) for name, value in kwargs.items()}

    @cached_property
    def _static(self) -> frozenset[int | str]:
        info = getattr(self._function, "_jit_info", None)
        return frozenset([*getattr(info, "static_argnums", ()), *getattr(info, "static_argnames", ())])

    @cached_property
    def _names(self) -> tuple[str, ...]:
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (TypeError, ValueError):
            return ()
        return tuple(
            each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        )


class Argument(NamedTuple):
    """Of one argument, what a compilation depends on."""

    shapes: tuple[tuple[int, ...], ...]
    structure: str
    dtypes: tuple[str, ...]
    value: int | None  # the hash of a static one
    text: str


Signature = dict[str, Argument]


def signature_of(named: Mapping[str, tuple[Any, bool]]) -> Signature:
    return {name: _static(value) if static else _traced(value) for name, (value, static) in named.items()}


def reason_for(before: Signature | None, now: Signature) -> str | None:
    """Why it was compiled once more; None where it is none of what it was called with."""
    if before is None:
        return "first"
    if before.keys() != now.keys():
        return "shape"
    pairs = [(before[name], now[name]) for name in now]
    if any(old.value != new.value for old, new in pairs):
        return "value"
    if any(old.dtypes != new.dtypes and len(old.dtypes) == len(new.dtypes) for old, new in pairs):
        return "dtype"
    if any((old.shapes, old.structure) != (new.shapes, new.structure) for old, new in pairs):
        return "shape"
    return None


def text_of(signature: Signature) -> str:
    """As a person would write it, without the data."""
    return ", ".join(f"{name}: {argument.text}" for name, argument in signature.items())[:_LONGEST_TEXT]


def _static(value: Any) -> Argument:
    """Numbers are shown; anything else may be what the user keeps to himself."""
    shown = repr(value) if isinstance(value, bool | int | float | None) else type(value).__name__
    return Argument((), "", (), hash(value), shown)


def _traced(value: Any) -> Argument:
    leaves, structure = tree_util.tree_flatten(value)
    shapes = tuple(tuple(getattr(leaf, "shape", ())) for leaf in leaves)
    dtypes = tuple(_dtype(leaf) for leaf in leaves)
    one = f"{dtypes[0]}{list(shapes[0])}" if len(leaves) == 1 else f"{len(leaves)} arrays"
    return Argument(shapes, str(structure), dtypes, None, one)


def _dtype(leaf: Any) -> str:
    """Python's numbers take the type of what they meet, which is a type of its own."""
    dtype = getattr(leaf, "dtype", None)
    weak = " weak" if getattr(leaf, "weak_type", False) else ""
    return type(leaf).__name__ if dtype is None else f"{dtype}{weak}"
