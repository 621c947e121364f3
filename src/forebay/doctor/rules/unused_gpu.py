"""The rule for scripts of PyTorch that compute on the CPU although PyTorch sees a GPU.

Small operations take a GPU about as long as a CPU, because Python launches them one by one. So the first cure also
launches the step as one CUDA graph.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import leaves_gpu_unused
from forebay.doctor.analyse.phases import PHASES, parts_of_step
from forebay.doctor.analyse.steps import REST
from forebay.doctor.model.formatting import format_percent
from forebay.doctor.predict.compile_cure_changes import move_to_gpu
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MIN_OPERATORS = 5  # of a step; fewer are no training step


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if the operators of a step were counted."""
    operators = view.capture.facts.get("operators") or 0
    if view.steps is None or not view.step_seconds or operators < MIN_OPERATORS or not leaves_gpu_unused(view):
        return
    parts = parts_of_step(view)
    computing = sum(parts.get(part, 0.0) for part in (*PHASES, REST))
    flops = float((view.capture.facts.get("arithmetic") or {}).get("flops_per_step") or 0.0)
    yield Finding(
        rule="unused_gpu",
        title=f"The CPU computes the {operators} operators of a step, although PyTorch sees a GPU",
        line=view.line(view.steps.anchor[2]),
        seconds=computing,
        cures=(
            Cure(
                "move the training to the GPU, and launch the step as one CUDA graph",
                _GRAPH_CODE,
                "a CUDA graph launches all operators at once; shapes must stay the same",
                move_to_gpu(view, operators, flops, is_graph=True),
            ),
            Cure(
                "move the training to the GPU",
                _CODE,
                "Python launches each operator, which takes some microseconds",
                move_to_gpu(view, operators, flops, is_graph=False),
            ),
        ),
        evidence=(f"Work on the CPU takes {format_percent(computing / view.step_seconds)} of a step.",),
        why_more="A GPU may also compute faster.",
    )


_CODE = """device = torch.device("cuda")
model.to(device)   # before the optimizer is made
# in the loop:
x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)"""
_GRAPH_CODE = f"""{_CODE}
# after some ordinary steps on a side stream; shapes stay the same, and the optimizer needs capturable=True:
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    ...   # the step; it reads static_x and static_y, which keep their memory
# in the loop, instead of the step:
static_x.copy_(x); static_y.copy_(y); graph.replay()"""
