"""Floating-point operations of XLA programs with known sizes, in the text form that XLA writes for a CPU or a GPU."""

import pytest

from forebay.doctor.capture.arithmetic import flops_of_graphs, flops_of_programs
from forebay.doctor.capture.hlo_flops import UnknownFlopsError, count_hlo_flops
from forebay.doctor.model.events import EventKind, LedgerEvent


def module(*lines, others=""):
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule jit_step, is_scheduled=true\n\n{others}\nENTRY %main.5 (x.1: f32[64,32]) -> f32[] {{\n{body}\n}}\n"
    )


def computation(name, *lines):
    body = "\n".join(f"  {line}" for line in lines)
    return f"%{name} (param_0: f32[64,32]) -> f32[64,16] {{\n{body}\n}}\n"


X, W = "%x.1 = f32[64,32]{1,0} parameter(0)", "%w.1 = f32[32,16]{1,0} parameter(1)"
DOT = "ROOT %dot.1 = f32[64,16]{1,0} dot(%x.1, %w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
DOT_FLOPS = 2 * 64 * 32 * 16
GEMM = (
    "%cublas-gemm.1 = (f32[64,16]{1,0}, s8[33554432]{0}) custom-call(%x.1, %w.1), "
    'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,'
    '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)
IMAGES, FILTER = "%i.1 = f32[8,32,32,3]{3,2,1,0} parameter(0)", "%f.1 = f32[5,5,3,16]{3,2,1,0} parameter(1)"
GRADIENT = "%g.1 = f32[8,14,14,16]{3,2,1,0} parameter(2)"
CONVOLUTION_FLOPS = 2 * 8 * 14 * 14 * 16 * 5 * 5 * 3
LABELS = "window={size=5x5 stride=2x2}, dim_labels=b01f_01io->b01f"


def convolution(result, first, second, target):
    return (
        f"%c.1 = ({result}, u8[0]{{0}}) custom-call({first}, {second}), {LABELS}, "
        f'custom_call_target="__cudnn$conv{target}"'
    )


LOOP = "%while.1 = (s32[], f32[64,32]{1,0}) while(%tuple.1), condition=%cond, body=%body, "


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        (module(X, W, DOT), DOT_FLOPS),
        (module(X, W, DOT.replace("dot(%x.1, %w.1)", "dot(f32[64,32]{1,0} %x.1, f32[32,16]{1,0} %w.1)")), DOT_FLOPS),
        (module(X, W, GEMM), DOT_FLOPS),
        (module(X, "ROOT %tanh.1 = f32[64,32]{1,0} tanh(%x.1)"), 0),
        (
            module(IMAGES, FILTER, f"%c.1 = f32[8,14,14,16]{{3,2,1,0}} convolution(%i.1, %f.1), {LABELS}"),
            CONVOLUTION_FLOPS,
        ),
        (module(IMAGES, FILTER, convolution("f32[8,14,14,16]", "%i.1", "%f.1", "Forward")), CONVOLUTION_FLOPS),
        (module(GRADIENT, FILTER, convolution("f32[8,32,32,3]", "%g.1", "%f.1", "BackwardInput")), CONVOLUTION_FLOPS),
        (module(IMAGES, GRADIENT, convolution("f32[5,5,3,16]", "%i.1", "%g.1", "BackwardFilter")), CONVOLUTION_FLOPS),
        (
            module(
                X,
                "%fusion.1 = f32[64,16]{1,0} fusion(%x.1), kind=kCustom, calls=%fused",
                others=computation("fused", X, W, DOT),
            ),
            DOT_FLOPS,
        ),
        (
            module(
                X,
                LOOP + 'backend_config={"known_trip_count":{"n":"5"}}',
                others=computation("body", X, W, DOT) + computation("cond", X),
            ),
            5 * DOT_FLOPS,
        ),
        (
            module(
                X,
                "%c = f32[64,16]{1,0} conditional(%p, %x.1, %x.1), branch_computations={%yes, %no}",
                others=computation("yes", X, W, DOT) + computation("no", X),
            ),
            DOT_FLOPS,
        ),
    ],
)
def test_the_operations_of_a_program_are_those_of_its_products_and_convolutions(text, flops):
    assert count_hlo_flops(text) == flops


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not a module",
        module(X, LOOP + "metadata={}", others=computation("body", X, W, DOT)),
        module(X, '%c.1 = f32[64,32]{1,0} custom-call(%x.1), custom_call_target="__cudnn$fmhaSoftmax"'),
        module(X, W, GEMM.replace('"lhs_contracting_dimensions":["1"],', "")),
        module(X, "%dot.1 = f32[64,16]{1,0} dot(%lost, %w.1), lhs_contracting_dims={1}"),
    ],
)
def test_a_program_whose_operations_cannot_be_counted_raises(text):
    with pytest.raises(UnknownFlopsError):
        count_hlo_flops(text)


def test_counting_ends_if_a_computation_calls_itself():
    text = module(X, "%f = f32[2] call(%x.1), to_apply=%main.5")
    assert count_hlo_flops(text) == 0


def call_at(end, name="step"):
    return LedgerEvent(EventKind.RUN, f"{name}(x)", 0, 1, end - 5, end, 0, {"function": name})


STEP_ENDS = (100, 200, 300)


def test_the_operations_per_step_come_from_calls_in_recorded_steps():
    events = [call_at(50), call_at(150), call_at(160), call_at(250), call_at(260), call_at(350)]
    assert flops_of_programs(events, STEP_ENDS, {"step": [module(X, W, DOT)]}) == 2 * DOT_FLOPS


def test_a_function_without_a_program_makes_the_sum_unknown():
    assert flops_of_programs([call_at(150), call_at(160, "other")], STEP_ENDS, {"step": [module(X, W, DOT)]}) is None


def test_a_function_that_was_compiled_for_several_shapes_raises():
    with pytest.raises(UnknownFlopsError):
        flops_of_programs([call_at(150)], STEP_ENDS, {"step": [module(X, W, DOT), module(X)]})


def trace_with(flops, name="step"):
    detail = {"function": name} | ({"flops": flops} if flops is not None else {})
    return LedgerEvent(EventKind.COMPILE, "tf.function", 0, 1, 1, 2, 0, detail)


def test_the_operations_of_a_traced_graph_count_for_each_call():
    calls = [call_at(150), call_at(160), call_at(250), call_at(260)]
    assert flops_of_graphs([trace_with(70), trace_with(70), *calls], STEP_ENDS) == 2 * 70


def test_a_graph_with_unknown_operations_makes_the_sum_unknown():
    assert flops_of_graphs([trace_with(None), call_at(150)], STEP_ENDS) is None


def test_a_function_with_graphs_of_different_sizes_raises():
    with pytest.raises(UnknownFlopsError):
        flops_of_graphs([trace_with(70), trace_with(80), call_at(150)], STEP_ENDS)
