"""Signatures of traced functions, formatted without user values, and reasons for a new trace."""

from collections.abc import Iterable, Iterator
from typing import Any

from tensorflow.core.function.trace_type import default_types
from tensorflow.python.framework import tensor as tensors

__all__ = ["format_signature", "retrace_reason"]

MAX_LENGTH = 200  # characters; a signature with all weights of a model would be unreadable
_REASONS = ("value", "dtype", "shape")  # `retrace_reason` returns the first of them that applies


def format_signature(function_type: Any) -> str:
    """Format the argument types: `x: float32[32, 10], rate: float`."""
    parts = (f"{name}: {_format_parameter(parameter)}" for name, parameter in function_type.parameters.items())
    return ", ".join(parts)[:MAX_LENGTH]


def retrace_reason(function_type: Any, earlier_types: Iterable[Any]) -> str:
    """Return why TensorFlow traced a function; "" if unknown.

    The reason is "first", or what differs from the most similar earlier type: "value", "dtype" or "shape".
    """
    earlier_leaves = [tuple(_leaves_of(earlier_type)) for earlier_type in earlier_types]
    if not earlier_leaves:
        return "first"
    leaves = tuple(_leaves_of(function_type))
    differences = min((list(_differences(leaves, earlier)) for earlier in earlier_leaves), key=len)
    return next((reason for reason in _REASONS if reason in differences), "")


def _leaves_of(function_type: Any) -> Iterator[Any]:
    """Yield the types of all arguments, without nesting."""
    for parameter in function_type.parameters.values():
        yield from _flatten(parameter.type_constraint)


def _flatten(nested_type: Any) -> Iterator[Any]:
    """Yield the leaves of a nested type."""
    if isinstance(nested_type, default_types.List):
        nested_type = nested_type.components_tuple
    if isinstance(nested_type, default_types.Tuple):
        for part in nested_type.components:
            yield from _flatten(part)
    elif isinstance(nested_type, default_types.Dict):
        for part in nested_type.mapping.values():
            yield from _flatten(part)
    else:
        yield nested_type


def _differences(leaves: tuple[Any, ...], earlier: tuple[Any, ...]) -> Iterator[str]:
    """Yield the reason for each difference between two signatures.

    A different number of arguments counts as "value".
    """
    if len(leaves) != len(earlier):
        yield "value"
    for leaf, earlier_leaf in zip(leaves, earlier, strict=False):
        if leaf == earlier_leaf:
            continue
        if not isinstance(leaf, tensors.TensorSpec) or not isinstance(earlier_leaf, tensors.TensorSpec):
            yield "value"
        else:
            yield "dtype" if leaf.dtype != earlier_leaf.dtype else "shape"


def _format_parameter(parameter: Any) -> str:
    return " ".join(_format_leaf(leaf) for leaf in _flatten(parameter.type_constraint))


def _format_leaf(leaf: Any) -> str:
    if isinstance(leaf, tensors.TensorSpec):
        return f"{leaf.dtype.name}{leaf.shape.as_list() if leaf.shape.rank is not None else '[...]'}"
    if isinstance(leaf, default_types.Literal):
        return type(leaf.value).__name__
    return type(leaf).__name__
