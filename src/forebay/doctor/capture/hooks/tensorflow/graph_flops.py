"""Counts the floating-point operations (FLOPs) of a TensorFlow graph, from its static shapes.

Only products count. A multiplication and an addition are two FLOPs.
"""

from collections.abc import Callable
from math import prod
from typing import Any

__all__ = ["count_graph_flops"]

MAX_OPERATIONS = 100_000  # nodes of a graph and the functions that it calls; the FLOPs of larger graphs are unknown


class _UnknownError(Exception):
    """The shapes of the graph do not show its FLOPs."""


def count_graph_flops(graph: Any) -> int | None:
    """Return the FLOPs of a graph and of the functions that it calls.

    Return None if the shapes do not show the FLOPs.
    """
    try:
        return _count(graph, [MAX_OPERATIONS])
    except Exception:  # unknown shapes, or another version of TensorFlow; the caller must still record the trace
        return None


def _count(graph: Any, remaining: list[int]) -> int:
    """Return the FLOPs of a graph.

    `remaining` has one item: how many more operations (nodes of graphs) `_count` may visit.
    """
    total = 0
    for operation in graph.get_operations():
        remaining[0] -= 1
        if remaining[0] < 0 or operation.type.startswith("CudnnRNN"):
            raise _UnknownError
        formula = _FORMULAS.get(operation.type)
        if formula is not None:
            total += formula(operation)
        elif operation.type in _CALLS:
            total += _count_function(graph, operation.get_attr("f").name, remaining)
        elif operation.type in _LOOPS and any(
            _count_function(graph, operation.get_attr(name).name, remaining) for name in _LOOPS[operation.type]
        ):
            raise _UnknownError  # the number of iterations, or the branch, is known only when the graph runs
    return total


def _count_function(graph: Any, name: str, remaining: list[int]) -> int:
    function = graph._get_function(name)
    if function is None or getattr(function, "graph", None) is None:
        raise _UnknownError
    return _count(function.graph, remaining)


def _shape(tensor: Any) -> list[int]:
    dims = tensor.shape.as_list() if tensor.shape.rank is not None else None
    if dims is None or None in dims:
        raise _UnknownError
    return list(dims)


def _product(operation: Any) -> int:
    return _multiply(operation, operation.get_attr("transpose_a"))


def _batch_product(operation: Any) -> int:
    return _multiply(operation, operation.get_attr("adj_x"))


def _multiply(operation: Any, is_transposed: bool) -> int:
    return 2 * prod(_shape(operation.outputs[0])) * _shape(operation.inputs[0])[-2 if is_transposed else -1]


def _convolution(operation: Any) -> int:
    return 2 * prod(_shape(operation.outputs[0])) * prod(_shape(operation.inputs[1])[:-1])


def _input_gradient(operation: Any) -> int:
    return 2 * prod(_shape(operation.inputs[2])) * prod(_shape(operation.inputs[1])[:-1])


def _filter_gradient(operation: Any) -> int:
    return 2 * prod(_shape(operation.inputs[2])) * prod(_shape(operation.outputs[0])[:-1])


def _einsum(operation: Any) -> int:
    operands, _, _ = operation.get_attr("equation").decode().partition("->")
    sizes: dict[str, int] = {}
    for labels, tensor in zip(operands.split(","), operation.inputs, strict=True):
        if "." in labels:
            raise _UnknownError
        sizes |= zip(labels, _shape(tensor), strict=True)
    return 2 * prod(sizes.values()) if len(operation.inputs) > 1 else 0


_FORMULAS: dict[str, Callable[[Any], int]] = {
    "MatMul": _product,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_product),
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _input_gradient),
    **dict.fromkeys(("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"), _filter_gradient),
    "Einsum": _einsum,
}
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})  # operations that call a function
_LOOPS = {  # loops and branches -> attributes that name the functions that they may call
    **dict.fromkeys(("While", "StatelessWhile"), ("body",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}
