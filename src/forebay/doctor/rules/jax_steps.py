"""The rule for short JAX steps: calling them takes longer than computing them.

`jax.lax.scan` makes several steps in one call. The batches of these steps must be known before the call.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.device_time import seconds_per_step
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.compile_cure_changes import group_jax_steps
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MAX_STEP_SECONDS = 2e-3  # in a longer step, a call takes little of the time
MIN_SHARE = 0.6  # share of the step in which the device does not compute
WAITS = (EventKind.DOWNLOAD, EventKind.SYNC, EventKind.INPUT)  # a loop that waits in every step needs other cures


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if a step is one short compiled call, mostly without computation."""
    call = _only_call(view)
    if call is None or view.device is None or not 0 < view.step_seconds <= MAX_STEP_SECONDS:
        return
    computing = seconds_per_step(view.device, view.device.working_intervals)
    overhead = max(0.0, view.step_seconds - computing)
    if overhead < MIN_SHARE * view.step_seconds:
        return
    outside = max(0.0, view.step_seconds - cost_of(view, call.events))
    yield Finding(
        rule="jax_steps",
        title=f"Calling a short compiled step takes {format_percent(overhead / view.step_seconds)} of the time",
        line=call.line,
        seconds=overhead,
        cures=(
            Cure("put the data on the device, and make 50 steps per call", _ROWS, _BASIS, group_jax_steps(view, 0.0)),
            Cure("make 50 steps per call", _CODE, _HOST_BASIS, group_jax_steps(view, outside)),
        ),
        evidence=(
            f"The device computes for {format_seconds(computing)} per step.",
            f"A step launches {view.device.kernels_per_step:.0f} operations.",
        ),
    )


def _only_call(view: CaptureView) -> CallSite | None:
    """Return the only compiled call of a step, which the loop makes once per step.

    Return None if a step makes other calls of JAX, or waits for the device or for input.
    """
    calls = [site for site in view.sites_of(EventKind.RUN) if site.in_loop]
    waits = [site for site in view.sites_of(*WAITS) if site.in_loop]
    eager = [site for site in view.sites_of(EventKind.OPS, EventKind.TRANSFORM) if site.in_loop]
    if len(calls) != 1 or waits or eager or framework_of(view, calls[0].api) != "jax":
        return None
    return calls[0] if len(calls[0].events) <= calls[0].steps else None


_BASIS = "one call makes 50 steps and takes their rows on the device; the data must fit there"
_ROWS = (
    "x, y = jax.device_put((x, y))   # all rows, once\n"
    "@jax.jit\n"
    "def many_steps(state, x, y, rows):   # row numbers of 50 batches: shape (50, batch size)\n"
    "    def one_step(state, rows):\n"
    "        return step(state, (x[rows], y[rows])), None\n"
    "    return jax.lax.scan(one_step, state, rows)[0]"
)
_HOST_BASIS = "one call makes 50 steps; the host makes their batches as now"
_CODE = (
    "@jax.jit\n"
    "def many_steps(state, batches):   # 50 batches, stacked\n"
    "    def one_step(state, batch):\n"
    "        return step(state, batch), None\n"
    "    return jax.lax.scan(one_step, state, batches)[0]"
)
