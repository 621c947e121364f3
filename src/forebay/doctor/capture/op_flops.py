"""Floating-point operations of PyTorch's operators, from the shapes of their arguments.

Only products count: matrix products, convolutions and attention. Other operators do little arithmetic. A multiplication
and an addition are two operations. The formulas agree with `torch.utils.flop_counter`, except for the backward pass of
attention: this pass repeats a product of the forward pass, which does not count here, because the model does not need
it twice.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod

__all__ = ["count_computing", "count_flops"]

Shape = Sequence[int]
Shapes = Sequence[Shape]


def count_flops(operators: Iterable[tuple[str, Shapes]]) -> float | None:
    """Return the number of operations of all products.

    Return None if the shapes do not show the operations of a product. Each operator is its name, such as `aten::mm`,
    and the shapes of its arguments; the shape is [] for an argument that is not a tensor.
    """
    total, forward, backward = 0, 0, 0
    for name, shapes in operators:
        if name in _UNKNOWN:
            return None
        forward += name == _CONVOLUTION
        if name == _CONVOLUTION_BACKWARD:
            backward += 1
            total += _convolution(shapes)
        elif name in _FORMULAS:
            total += _FORMULAS[name](shapes)
    # The shapes of a convolution without a backward pass do not show its stride, so the size of its result is unknown.
    return float(total) if forward <= backward else None


def count_computing(names: Iterable[str | None]) -> int:
    """Return the number of operators that compute: each needs about one kernel of a GPU.

    `names` has the name of each operator at its start, and None at its end. An operator that calls others does not
    count, except products. Operators that only allocate memory or make views do not count, and the operators of an
    optimizer count as one, because a fused optimizer has few kernels.
    """
    count, started, optimizers = 0, list[str](), 0
    is_leaf = False
    for name in names:
        if name is not None:
            optimizers += name.startswith(_OPTIMIZER)
            started.append(name)
            is_leaf = True
            continue
        ended = started.pop() if started else ""
        computes = ended in _FORMULAS or (is_leaf and ended.startswith("aten::") and ended not in _WITHOUT_KERNEL)
        count += ended.startswith(_OPTIMIZER) or (computes and not optimizers)
        optimizers -= ended.startswith(_OPTIMIZER)
        is_leaf = False
    return count


def _product(first: int) -> Callable[[Shapes], int]:
    """Return the formula of a product whose left matrix is argument number `first`."""

    def count(shapes: Shapes) -> int:
        left, right = shapes[first], shapes[first + 1]
        return 2 * prod(left) * right[-1] if len(left) >= 2 and len(right) >= 2 else 0

    return count


def _attention(first: int, factor: int) -> Callable[[Shapes], int]:
    """Return the formula of attention whose queries are argument number `first`.

    The forward pass has two products (`factor` 1), and the backward pass has four (`factor` 2).
    """

    def count(shapes: Shapes) -> int:
        queries, keys, values = shapes[first : first + 3]
        if not len(queries) == len(keys) == len(values) == 4:
            return 0
        return factor * 2 * prod(queries[:3]) * keys[2] * (queries[3] + values[3])

    return count


def _convolution(shapes: Shapes) -> int:
    """Return the operations of a convolution and of the gradients of its input and weights."""
    result, images, weights = shapes[:3]
    if len(weights) < 3 or len(result) < 2 or len(images) < 2:
        return 0
    is_transposed = result[1] != weights[0]  # the weights then have the channels of the input first
    return 3 * 2 * prod(images if is_transposed else result) * prod(weights[1:])


_CONVOLUTION, _CONVOLUTION_BACKWARD = "aten::convolution", "aten::convolution_backward"
_ATTENTION = ("flash", "efficient", "cudnn", "fused")
_FORMULAS: dict[str, Callable[[Shapes], int]] = {
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::_scaled_mm": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::_addmm_activation": _product(1),
    **{f"aten::_scaled_dot_product_{kind}_attention": _attention(0, 1) for kind in _ATTENTION},
    **{f"aten::_scaled_dot_product_{kind}_attention_backward": _attention(1, 2) for kind in _ATTENTION},
}
_OPTIMIZER = "Optimizer.step#"  # start of the name of a record that contains the operators of an optimizer
# Operators that allocate memory, make views or read values, which needs no kernel.
_WITHOUT_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "alias",
            "as_strided",
            "chunk",
            "detach",
            "detach_",
            "empty",
            "empty_like",
            "empty_strided",
            "expand",
            "item",
        ),
        *("lift_fresh", "permute", "reshape", "resize_", "resolve_conj", "resolve_neg", "result_type", "select"),
        *("set_", "slice", "split", "squeeze", "t", "to", "transpose", "unbind", "unsqueeze", "view", "view_as"),
        *("_local_scalar_dense", "_reshape_alias", "_unsafe_view", "is_nonzero", "numpy_T", "requires_grad_"),
    )
)
# Products whose operations the shapes do not show.
_UNKNOWN = frozenset(
    {"aten::_cudnn_rnn", "aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_thnn_fused_lstm_cell"}
)
