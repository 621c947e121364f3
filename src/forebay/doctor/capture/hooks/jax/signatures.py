"""Signatures of calls of a jitted function, and why a new signature caused a compilation."""

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from jax import tree_util

__all__ = ["ArgumentSignature", "Parameters", "Signature", "recompile_reason", "signature_of", "format_signature"]

_MAX_SIGNATURE_LENGTH = 200  # characters


class Parameters:
    """The parameter names of a jitted function, and which of them are static."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, tuple[Any, bool]]:
        """Return a dict: parameter name -> argument, and whether the argument is static."""
        unnamed = (f"argument {position + 1}" for position in range(len(self._names), len(args)))
        names = (*self._names[: len(args)], *unnamed)
        static = self._static_parameters
        positional = {
            name: (value, position in static) for position, (name, value) in enumerate(zip(names, args, strict=True))
        }
        return positional | {name: (value, name in static) for name, value in kwargs.items()}

    @cached_property
    def _static_parameters(self) -> frozenset[int | str]:
        """The positions and names of the static parameters."""
        info = getattr(self._function, "_jit_info", None)
        return frozenset([*getattr(info, "static_argnums", ()), *getattr(info, "static_argnames", ())])

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The names of the positional parameters; empty if Python cannot read them."""
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
    """The properties of one argument on which a compilation depends."""

    shapes: tuple[tuple[int, ...], ...]  # of the leaves
    structure: str  # of the tree
    dtypes: tuple[str, ...]  # of the leaves
    value: int | None  # hash of a static argument; None for other arguments
    text: str  # for reports; it contains no array data


Signature = dict[str, ArgumentSignature]


def signature_of(arguments: Mapping[str, tuple[Any, bool]]) -> Signature:
    """Return the signature of arguments as `Parameters.bind` returns them."""
    return {
        name: _signature_of_static(value) if is_static else _signature_of_traced(value)
        for name, (value, is_static) in arguments.items()
    }


def recompile_reason(old_signature: Signature | None, new_signature: Signature) -> str | None:
    """Return "first", or what changed: "value", "dtype" or "shape"; None if nothing changed.

    A call with other parameters counts as a change of shape.
    """
    if old_signature is None:
        return "first"
    if old_signature.keys() != new_signature.keys():
        return "shape"
    pairs = [(old_signature[name], new_signature[name]) for name in new_signature]
    if any(old.value != new.value for old, new in pairs):
        return "value"
    if any(old.dtypes != new.dtypes and len(old.dtypes) == len(new.dtypes) for old, new in pairs):
        return "dtype"
    if any((old.shapes, old.structure) != (new.shapes, new.structure) for old, new in pairs):
        return "shape"
    return None


def format_signature(signature: Signature) -> str:
    """Format the arguments without array data, such as `x: float32[32, 10], rate: float[], size: 3`."""
    return ", ".join(f"{name}: {argument.text}" for name, argument in signature.items())[:_MAX_SIGNATURE_LENGTH]


def _signature_of_static(value: Any) -> ArgumentSignature:
    """Return the signature of a static argument.

    Its text shows only numbers, booleans and None, because other values may be private.
    """
    text = repr(value) if isinstance(value, bool | int | float | None) else type(value).__name__
    return ArgumentSignature((), "", (), hash(value), text)


def _signature_of_traced(value: Any) -> ArgumentSignature:
    leaves, structure = tree_util.tree_flatten(value)
    shapes = tuple(tuple(getattr(leaf, "shape", ())) for leaf in leaves)
    dtypes = tuple(_dtype_name(leaf) for leaf in leaves)
    text = f"{dtypes[0]}{list(shapes[0])}" if len(leaves) == 1 else f"{len(leaves)} arrays"
    return ArgumentSignature(shapes, str(structure), dtypes, None, text)


def _dtype_name(leaf: Any) -> str:
    """Return the dtype, or the type of a Python value.

    "weak" marks a dtype that adapts to other operands.
    """
    dtype = getattr(leaf, "dtype", None)
    weak = " weak" if getattr(leaf, "weak_type", False) else ""
    return type(leaf).__name__ if dtype is None else f"{dtype}{weak}"
