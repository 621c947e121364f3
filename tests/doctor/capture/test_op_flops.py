"""Floating-point operations of PyTorch operators with known shapes: products, convolutions and attention."""

import pytest

from forebay.doctor.capture.op_flops import count_computing, count_flops

IMAGES, WEIGHTS, RESULT = [8, 3, 32, 32], [16, 3, 5, 5], [8, 16, 14, 14]
QUERIES, KEYS = [2, 4, 128, 64], [2, 4, 256, 64]


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::mm", [[5, 7], [7, 11]], 2 * 5 * 7 * 11),
        ("aten::addmm", [[11], [5, 7], [7, 11], [], []], 2 * 5 * 7 * 11),
        ("aten::bmm", [[3, 5, 7], [3, 7, 11]], 3 * 2 * 5 * 7 * 11),
        ("aten::baddbmm", [[3, 5, 11], [3, 5, 7], [3, 7, 11]], 3 * 2 * 5 * 7 * 11),
        ("aten::_scaled_dot_product_flash_attention", [QUERIES, KEYS, KEYS], 2 * 2 * 4 * 128 * 256 * (64 + 64)),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            [QUERIES, QUERIES, KEYS, KEYS],
            2 * 2 * 2 * 4 * 128 * 256 * (64 + 64),
        ),
        ("aten::convolution_backward", [RESULT, IMAGES, WEIGHTS], 3 * 2 * 8 * 16 * 14 * 14 * 3 * 5 * 5),
        (  # a convolution in four groups: each number of the result is a sum over the channels of one group
            "aten::convolution_backward",
            [[4, 16, 13, 13], [4, 8, 15, 15], [16, 2, 3, 3]],
            3 * 2 * 4 * 16 * 13 * 13 * 2 * 3 * 3,
        ),
        ("aten::add", [[5, 7], [5, 7]], 0),
        ("aten::mm", [[], []], 0),
        ("aten::convolution_backward", [[], [], []], 0),
    ],
)
def test_the_operations_of_a_product_follow_from_its_shapes(name, shapes, flops):
    assert count_flops([(name, shapes)]) == flops


def test_a_transposed_convolution_multiplies_each_number_of_its_input():
    images, weights, result = [8, 16, 14, 14], [16, 3, 5, 5], [8, 3, 31, 31]
    assert count_flops([("aten::convolution_backward", [result, images, weights])]) == 3 * 2 * 8 * 16 * 14 * 14 * 75


def test_a_convolution_is_counted_by_its_backward_pass_only():
    forward, backward = (
        ("aten::convolution", [IMAGES, WEIGHTS]),
        ("aten::convolution_backward", [RESULT, IMAGES, WEIGHTS]),
    )
    assert count_flops([forward, backward]) == count_flops([backward])


@pytest.mark.parametrize("name", ["aten::convolution", "aten::_cudnn_rnn"])
def test_a_product_whose_shapes_do_not_show_its_size_makes_the_sum_unknown(name):
    assert count_flops([("aten::mm", [[5, 7], [7, 11]]), (name, [IMAGES, WEIGHTS])]) is None


def test_operators_that_only_call_others_or_make_views_do_not_count():
    linear = ["aten::linear", "aten::t", "aten::transpose", None, None, "aten::addmm", "aten::expand", None, None, None]
    assert count_computing(linear) == 1
    assert count_computing(["aten::relu", "aten::clamp_min", None, None, "aten::view", None]) == 1
    assert count_computing(["AddBackward0", None, "MyFunction", "aten::exp", None, None]) == 1
    assert count_computing([]) == 0


def test_the_operators_of_an_optimizer_count_as_one():
    step = ["Optimizer.step#Adam.step", "aten::mul", None, "aten::add", None, None]
    assert count_computing([*step, "aten::zero_", None]) == 2
    assert count_computing([None, "aten::zero_", None]) == 1  # the recording began inside of an operator
