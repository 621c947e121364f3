"""Floating-point operations of PyTorch's operators, from the shapes of their arguments.

Only products count: matrix products, convolutions and attention. Other operators do little arithmetic. A multiplication
and an addition are two operations. The formulas agree with `torch.utils.flop_counter`, except for the backward pass of
attention: this pass repeats a product of the forward pass, which does not count here, because the model does not need
it twice.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod

__all__ = ["count_flops"]

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
# Products whose operations the shapes do not show.
_UNKNOWN = frozenset(
    {"aten::_cudnn_rnn", "aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_thnn_fused_lstm_cell"}
)
