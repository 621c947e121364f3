"""What a function was traced for, without a value of the user's, and what differs from all it was traced for before."""

from collections.abc import Iterable, Iterator
from typing import Any

from tensorflow.core.function.trace_type import default_types
from tensorflow.python.framework import tensor as tensors

__all__ = ["reason_of", "signature_of"]

LONGEST = 200  # letters; a model's worth of arguments is nobody's reading
_ORDER = ("value", "dtype", "shape")  # which difference is told where there are several


def signature_of(function_type: Any) -> str:
    """`x: float32[32, 10], rate: float`."""
    parts = (f"{name}: {_spoken(parameter)}" for name, parameter in function_type.parameters.items())
    return ", ".join(parts)[:LONGEST]


def reason_of(function_type: Any, earlier: Iterable[Any]) -> str:
    """Why none of the earlier traces would do: by the one that is most alike; nothing where none says why."""
    known = [tuple(_leaves_of(other)) for other in earlier]
    if not known:
        return "first"
    leaves = tuple(_leaves_of(function_type))
    differences = min((list(_differences(leaves, other)) for other in known), key=len)
    return next((reason for reason in _ORDER if reason in differences), "")


def _leaves_of(function_type: Any) -> Iterator[Any]:
    for parameter in function_type.parameters.values():
        yield from _flat(parameter.type_constraint)


def _flat(kind: Any) -> Iterator[Any]:
    """The leaves of a nest of types."""
    if isinstance(kind, default_types.List):
        kind = kind.components_tuple
    if isinstance(kind, default_types.Tuple):
        for part in kind.components:
            yield from _flat(part)
    elif isinstance(kind, default_types.Dict):
        for part in kind.mapping.values():
            yield from _flat(part)
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


def _spoken(parameter: Any) -> str:
    return " ".join(_leaf(leaf) for leaf in _flat(parameter.type_constraint))


def _leaf(leaf: Any) -> str:
    if isinstance(leaf, tensors.TensorSpec):
        return f"{leaf.dtype.name}{leaf.shape.as_list() if leaf.shape.rank is not None else '[...]'}"
    if isinstance(leaf, default_types.Literal):
        return type(leaf.value).__name__
    return type(leaf).__name__
