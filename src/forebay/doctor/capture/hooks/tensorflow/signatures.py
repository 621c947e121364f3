"""The signature that a function was traced for, without user values, and the reason for another trace."""

from collections.abc import Iterable, Iterator
from typing import Any

from tensorflow.core.function.trace_type import default_types
from tensorflow.python.framework import tensor as tensors

__all__ = ["format_signature", "retrace_reason"]

MAX_LENGTH = 200  # characters; the arguments of a whole model would be unreadable
_REASONS = ("value", "dtype", "shape")  # the first difference in this order is reported


def format_signature(function_type: Any) -> str:
    """Format the argument types: `x: float32[32, 10], rate: float`."""
    parts = (f"{name}: {_format_parameter(parameter)}" for name, parameter in function_type.parameters.items())
    return ", ".join(parts)[:MAX_LENGTH]


def retrace_reason(function_type: Any, earlier: Iterable[Any]) -> str:
    """Return why no earlier trace fits, compared with the most similar one; "" if unknown."""
    known = [tuple(_leaves_of(other)) for other in earlier]
    if not known:
        return "first"
    leaves = tuple(_leaves_of(function_type))
    differences = min((list(_differences(leaves, other)) for other in known), key=len)
    return next((reason for reason in _REASONS if reason in differences), "")


def _leaves_of(function_type: Any) -> Iterator[Any]:
    for parameter in function_type.parameters.values():
        yield from _flatten(parameter.type_constraint)


def _flatten(kind: Any) -> Iterator[Any]:
    """Yield the leaves of a nested type."""
    if isinstance(kind, default_types.List):
        kind = kind.components_tuple
    if isinstance(kind, default_types.Tuple):
        for part in kind.components:
            yield from _flatten(part)
    elif isinstance(kind, default_types.Dict):
        for part in kind.mapping.values():
            yield from _flatten(part)
    else:
        yield kind


def _differences(leaves: tuple[Any, ...], others: tuple[Any, ...]) -> Iterator[str]:
    if len(leaves) != len(others):
        yield "value"
    for leaf, other in zip(leaves, others, strict=False):
        if leaf == other:
            continue
        if not isinstance(leaf, tensors.TensorSpec) or not isinstance(other, tensors.TensorSpec):
            yield "value"
        else:
            yield "dtype" if leaf.dtype != other.dtype else "shape"


def _format_parameter(parameter: Any) -> str:
    return " ".join(_format_leaf(leaf) for leaf in _flatten(parameter.type_constraint))


def _format_leaf(leaf: Any) -> str:
    if isinstance(leaf, tensors.TensorSpec):
        return f"{leaf.dtype.name}{leaf.shape.as_list() if leaf.shape.rank is not None else '[...]'}"
    if isinstance(leaf, default_types.Literal):
        return type(leaf.value).__name__
    return type(leaf).__name__
