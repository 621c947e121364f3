"""The arguments of a jitted function, and which of them caused a new compilation."""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from jax import tree_util

__all__ = ["ArgumentSignature", "Parameters", "Signature", "recompile_reason", "signature_of", "format_signature"]

_MAX_LENGTH = 200  # characters


class Parameters:
    """The parameter names of a jitted function, and which of them are static."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, bool]]:
        """Return each argument by its name, with whether its value is compiled in."""
        unnamed = (f"argument {position + 1}" for position in range(len(self._names), len(args)))
        names = (*self._names[: len(args)], *unnamed)
        static = self._static
        given = {
            name: (value, position in static) for position, (name, value) in enumerate(zip(names, args, strict=True))
        }
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
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )


class ArgumentSignature(NamedTuple):
    """What a compilation depends on in one argument."""

    shapes: tuple[tuple[int, ...], ...]
    structure: str
    dtypes: tuple[str, ...]
    value: int | None  # hash of a static argument
    text: str


Signature = dict[str, ArgumentSignature]


def signature_of(named: Mapping[str, tuple[Any, bool]]) -> Signature:
    return {
        name: _static_argument(value) if is_static else _traced_argument(value)
        for name, (value, is_static) in named.items()
    }


def recompile_reason(before: Signature | None, now: Signature) -> str | None:
    """Return why a function was compiled again; None if its arguments are not the reason."""
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


def format_signature(signature: Signature) -> str:
    """Format the arguments without their data."""
    return ", ".join(f"{name}: {argument.text}" for name, argument in signature.items())[:_MAX_LENGTH]


def _static_argument(value: Any) -> ArgumentSignature:
    """Show numbers; other values may be private."""
    shown = repr(value) if isinstance(value, bool | int | float | None) else type(value).__name__
    return ArgumentSignature((), "", (), hash(value), shown)


def _traced_argument(value: Any) -> ArgumentSignature:
    leaves, structure = tree_util.tree_flatten(value)
    shapes = tuple(tuple(getattr(leaf, "shape", ())) for leaf in leaves)
    dtypes = tuple(_dtype(leaf) for leaf in leaves)
    text = f"{dtypes[0]}{list(shapes[0])}" if len(leaves) == 1 else f"{len(leaves)} arrays"
    return ArgumentSignature(shapes, str(structure), dtypes, None, text)


def _dtype(leaf: Any) -> str:
    """Return the dtype. A Python number has a weak type that adapts to other operands."""
    dtype = getattr(leaf, "dtype", None)
    weak = " weak" if getattr(leaf, "weak_type", False) else ""
    return type(leaf).__name__ if dtype is None else f"{dtype}{weak}"
