"""The number of bytes that fused kernels of XLA read and write."""

import pytest
from tests.doctor.capture.test_hlo_flops import DOT, W, X, computation, module

from forebay.doctor.capture.arithmetic import bytes_of_kernels, kernel_nbytes

NUMBERS = 64 * 32  # in each array
FUSION = "ROOT %loop_add_fusion.2 = f32[64,32]{1,0} fusion(%x.1, %x.1), kind=kLoop, calls=%fused"
LEFT, RIGHT = "%param_0 = f32[64,32]{1,0} parameter(0)", "%param_1 = f32[64,32]{1,0} parameter(1)"
ADD = "ROOT %add.0 = f32[64,32]{1,0} add(%param_0, %param_1)"
START = "%param_1 = s32[] parameter(1)"
SLICE = "%part = f32[1,32]{1,0} dynamic-slice(%param_0, %param_1, %param_1), dynamic_slice_sizes={1,32}"


@pytest.mark.parametrize(
    ("fusion", "body", "nbytes"),
    [
        (FUSION, (LEFT, RIGHT, ADD), 3 * 4 * NUMBERS),
        (FUSION.replace("f32[64,32]{1,0} fusion", "bf16[64,32]{1,0} fusion"), (LEFT, RIGHT, ADD), 10 * NUMBERS),
        (
            FUSION.replace("f32[64,32]{1,0} fusion", "(f32[64,32]{1,0}, pred[64,32]{1,0}) fusion"),
            (LEFT, RIGHT, ADD),
            13 * NUMBERS,
        ),
        (  # reads an index and one row of the first operand, and writes a row
            "ROOT %loop_add_fusion.2 = f32[1,32]{1,0} fusion(%x.1, %i.1), kind=kLoop, calls=%fused",
            (LEFT, START, SLICE, "ROOT %add.0 = f32[1,32]{1,0} add(%part, %part)"),
            2 * 4 * 32 + 4,
        ),
        (  # writes one row in place
            "ROOT %loop_add_fusion.2 = f32[64,32]{1,0} fusion(%x.1, %i.1, %row.1), kind=kLoop, calls=%fused",
            (
                LEFT,
                START,
                "%param_2 = f32[1,32]{1,0} parameter(2)",
                "ROOT %u = f32[64,32]{1,0} dynamic-update-slice(%param_0, %param_2, %param_1, %param_1)",
            ),
            2 * 4 * 32 + 4,
        ),
    ],
)
def test_a_kernel_reads_its_operands_and_writes_its_result(fusion, body, nbytes):
    others = ("%i.1 = s32[] parameter(1)", "%row.1 = f32[1,32]{1,0} parameter(2)")
    text = module(X, *others, fusion, others=computation("fused", *body))
    assert kernel_nbytes(text) == {"loop_add_fusion_2": nbytes}


@pytest.mark.parametrize("text", ["", "not a module", module(X, W, DOT)])
def test_a_program_without_fusions_has_no_kernels(text):
    assert kernel_nbytes(text) == {}


def test_a_kernel_name_with_different_bytes_in_two_programs_is_omitted():
    one = module(X, FUSION, others=computation("fused", LEFT, RIGHT, ADD))
    assert bytes_of_kernels({"one": [one], "other": [one]}) == {"loop_add_fusion_2": 3 * 4 * NUMBERS}
    assert bytes_of_kernels({"one": [one], "other": [one.replace("64,32", "64,16")]}) == {}
