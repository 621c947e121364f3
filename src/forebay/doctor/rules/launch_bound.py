"""The rule for short operations that the device finishes before Python launches the next.

Like XProf, the rule reports launches that take at least 15 % of a step. Like Holistic Trace Analysis (HTA) of PyTorch,
it requires short operations.
"""

import re
from collections.abc import Iterator
from statistics import median

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import framework_of, step_framework
from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.compile_cure_changes import (
    CallingTime,
    compile_model,
    compile_step,
    compile_step_with_xla,
    group_jax_steps,
    unroll_recurrence,
)
from forebay.doctor.rules import keras_steps
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_compile, fit_keras_compile, fit_line, fit_more_steps, keras_setting
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.xla_edits import compile_with_xla, has_recurrence

__all__ = ["examine"]

MIN_REPORTED_SHARE = 0.15  # share of a step that launches take, as in XProf
MIN_LAUNCHES = 50  # per step; the rule does not report fewer
MAX_KERNEL_SECONDS = 50e-6  # limit for the median kernel, as in HTA; a longer kernel hides the next launch


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield a finding if launches of short operations take a reportable share of a step.

    If `settings`, `tiny_ops`, `eager` or `keras_steps` reports the operations, that rule already explains their time.
    """
    device_view = view.device
    if (
        device_view is None
        or keras_steps.is_reported(view)
        or any(view.sites_for(rule, EventKind.OPS) for rule in ("settings", "tiny_ops", "eager"))
    ):
        return
    launching = view.step_parts.get(LAUNCHING, 0.0)
    if (
        device_view.kernels_per_step < MIN_LAUNCHES
        or launching < MIN_REPORTED_SHARE * view.step_seconds
        or _median_kernel_seconds(device_view) > MAX_KERNEL_SECONDS
    ):
        return
    finding = _finding(view, device_view, launching)
    if finding.cures:
        yield finding


def _median_kernel_seconds(device_view: DeviceView) -> float:
    kernels = device_view.kernels
    return float(median((kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)).tolist())) / 1e9


def _finding(view: CaptureView, device_view: DeviceView, launching: float) -> Finding:
    framework = step_framework(view)
    return Finding(
        rule="launch_bound",
        title=f"{device_view.kernels_per_step:.0f} operations per step are "
        "launched one by one, and the device waits for each",
        line=_step_line(view),
        seconds=launching,
        cures=tuple(_cures(view, framework, launching)),
        evidence=(
            f"The median operation takes {format_seconds(_median_kernel_seconds(device_view))}.",
            "The device computes for "
            f"{format_percent(device_view.working_intervals.length / 1e9 / len(device_view) / device_view.seconds)} "
            "of a recorded step.",
        ),
    )


def _cures(view: CaptureView, framework: str, launching: float) -> Iterator[Cure]:
    """Yield the cures.

    With PyTorch's compiler, the launches of the optimizer and of the compiled code remain. If a loop of PyTorch already
    calls a compiled function, or Keras already compiles its step with PyTorch, the rule does not offer the compiler. A
    step of JAX that is already compiled is not compiled again: several steps become one call.
    """
    basis = "the cure removes separate launches and the Python code between them"
    changes = compile_step(view, framework, CallingTime(launching, launching))
    if framework == "torch" and _is_of_keras(view):
        if keras_setting(view, "jit_compile") is not True:
            yield Cure("compile the model", _keras_jit(view), _COMPILED_BASIS, compile_model(view))
        return
    run_line = _run_line(view)
    if framework == "jax" and run_line is not None:
        yield Cure("make 50 steps per call", _SCAN_CODE, _SCAN_BASIS, group_jax_steps(view, 0.0))
        return
    if framework == "tensorflow" and not _is_of_keras(view):
        code = script_code(view, run_line or _step_line(view))
        if code is not None and has_recurrence(code):
            yield Cure("unroll the recurrent layers", _UNROLL_CODE, _UNROLL_BASIS, unroll_recurrence(view))
            return
        changes = compile_step_with_xla(view)
    if framework != "torch":
        yield Cure("launch the step as one graph", _code(view, framework), basis, changes)
        return
    yield Cure("launch the step as one graph", _CUDA_GRAPH_CODE, basis, changes)
    # The compiler runs sparse operations one by one.
    if not _is_sparse(view) and run_line is None:
        yield Cure("compile the model", _code(view, framework), _COMPILED_BASIS, compile_model(view))


def _is_sparse(view: CaptureView) -> bool:
    names = view.device.names if view.device is not None else ()
    return any(_SPARSE_KERNEL.search(name) for name in names)


def _code(view: CaptureView, framework: str) -> str:
    """Return code that launches the step as one graph: an edit, else an example."""
    if _is_of_keras(view):
        return _keras_code(view)
    if framework == "tensorflow":
        fitted = fit_line(view, _run_line(view) or _step_line(view), compile_with_xla)
    else:
        fitted = fit_compile(view, _step_line(view), framework)
    return fitted or _CODE.get(framework, _CODE["torch"])


def _is_of_keras(view: CaptureView) -> bool:
    """Whether Keras makes the steps, not a loop of the script with an optimizer."""
    steps = [framework_of(view, site.api) for site in view.sites_of(EventKind.STEP) if site.in_loop]
    has_model = any(event.api == "Model.compile" for event in view.events_of(EventKind.BUILD))
    return "keras" in steps or (has_model and not steps)


def _keras_code(view: CaptureView) -> str:
    """Return `model.compile` with XLA or, if Keras already uses XLA, with more steps per call.

    By default, Keras compiles with XLA if the model allows it.
    """
    if keras_setting(view, "jit_compile") is False:
        return _keras_jit(view)
    return fit_more_steps(view)


def _keras_jit(view: CaptureView) -> str:
    return fit_keras_compile(view, jit_compile="True") or "model.compile(..., jit_compile=True)"


def _run_line(view: CaptureView) -> Line | None:
    """Return the line that calls the compiled function of a step; None without one."""
    return next((site.line for site in view.sites_of(EventKind.RUN) if site.in_loop), None)


def _step_line(view: CaptureView) -> Line | None:
    """Return the line that ends a step; None without steps.

    The finding names this line, because many lines launch operations.
    """
    return view.line(view.steps.anchor[2]) if view.steps else None


_COMPILED_BASIS = "the compiler fuses operations; launches of the optimizer and calls of the model remain"
_SCAN_BASIS = "one call makes 50 steps; their batches must be known before the call, and on the device if they fit"
_SCAN_CODE = """@jax.jit
def many_steps(state, batches):   # 50 batches, stacked
    def one_step(state, batch):
        ...   # the step: return the new state and its loss
    return jax.lax.scan(one_step, state, batches)   # the last state and 50 losses, which the host reads at once"""
_UNROLL_BASIS = "TensorFlow runs the loop of a recurrent layer operation by operation; sequences must have one length"
_UNROLL_CODE = "tf.keras.layers.LSTM(..., unroll=True)   # likewise in other recurrent layers"
_SPARSE_KERNEL = re.compile("csr|coo|spmm|sparse", re.IGNORECASE)
_CUDA_GRAPH_CODE = """# shapes and addresses stay the same; the optimizer needs capturable=True
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):   # after some ordinary steps
    ...   # the step, on tensors x and y that stay
# in the loop:
x.copy_(next_x); y.copy_(next_y); graph.replay()"""
_CODE = {
    "torch": "step = torch.compile(step, mode='reduce-overhead')   # or torch.cuda.make_graphed_callables",
    "tensorflow": "@tf.function(jit_compile=True)\ndef train_step(x, y): ...",
    "jax": "@jax.jit\ndef train_step(state, batch): ...   # the whole step, not parts of it",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...   # or stream.begin_capture() ... graph.launch()",
}
