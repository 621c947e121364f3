"""The device is done with each operation before Python asks for the next: many launches, little to compute.

XProf's limits: launching takes 15 % of a step or more; an operation that runs shorter than its launch, as HTA has it.
"""

from collections.abc import Iterator
from statistics import median

import numpy as np

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.idle_time import LAUNCHING
from forebay.doctor.model.events import Kind, Line
from forebay.doctor.model.formatting import percent, seconds
from forebay.doctor.predict.cure_changes import compiled
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged

__all__ = ["examine"]

LEAST_SHARE = 0.15  # of a step
FEWEST = 50  # launches a step
LONGEST_SECONDS = 50e-6  # of the median operation: a longer one hides the next launch
SURELY_WON = 0.5  # of the launching


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or any(charged(case, rule, Kind.OPS) for rule in ("threads", "tiny_ops", "eager")):
        return
    launching = case.step_parts.get(LAUNCHING, 0.0)
    if view.kernels_per_step < FEWEST or launching < LEAST_SHARE * case.step_seconds or _lasts(view) > LONGEST_SECONDS:
        return
    yield _finding(case, view, launching)


def _lasts(view: DeviceView) -> float:
    kernels = view.kernels
    return float(median((kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)).tolist())) / 1e9


def _finding(case: Case, view: DeviceView, launching: float) -> Finding:
    framework = next(iter(case.frameworks), "torch")
    how = "nobody launches one by one any more; Python between launches goes too"
    code = _CODE.get(framework, _CODE["torch"])
    changes = compiled(case, framework)
    return Finding(
        rule="launch_bound",
        title=f"{view.kernels_per_step:.0f} operations a step are launched one by one, and the device waits for each",
        line=_step_line(case),
        seconds=launching,
        cures=(Cure("launch the step as one graph", code, launching * SURELY_WON, launching, how, changes),),
        evidence=(
            f"the median operation takes {seconds(_lasts(view))}",
            f"the device computes {percent(view.working.length / 1e9 / len(view) / view.seconds)} of a recorded step",
        ),
    )


def _step_line(case: Case) -> Line | None:
    """Where a step ends: what is launched belongs to all of its lines."""
    return case.line(case.steps.anchor[2]) if case.steps else None


_CODE = {
    "torch": "step = torch.compile(step, mode='reduce-overhead')   # or torch.cuda.make_graphed_callables",
    "tensorflow": "@tf.function(jit_compile=True)\ndef train_step(x, y): ...",
    "jax": "@jax.jit\ndef train_step(state, batch): ...   # the whole step, not parts of it",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...   # or stream.begin_capture() ... graph.launch()",
}
