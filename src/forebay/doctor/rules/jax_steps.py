"""The rule for short steps of JAX: calling a compiled step takes much longer than computing it.

`jax.lax.scan` makes several steps in one call. The batches of these steps must be known before the call.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.device_time import seconds_per_step
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.compile_cures import group_jax_steps
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

LONGEST_STEP_SECONDS = 2e-3  # in a longer step, a call takes little of the time
LEAST_SHARE = 0.6  # of the step in which the device does not compute
WAITS = (EventKind.DOWNLOAD, EventKind.SYNC, EventKind.INPUT)  # a loop that waits in every step needs other cures


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if a step is one short call of a compiled function, and the device is idle most of the time."""
    call = _only_call(view)
    if call is None or view.device is None or not 0 < view.step_seconds <= LONGEST_STEP_SECONDS:
        return
    computing = seconds_per_step(view.device, view.device.working)
    overhead = max(0.0, view.step_seconds - computing)
    if overhead < LEAST_SHARE * view.step_seconds:
        return
    outside = max(0.0, view.step_seconds - cost_of(view, call.events))
    yield Finding(
        rule="jax_steps",
        title=f"Calling a short compiled step takes {format_percent(overhead / view.step_seconds)} of the time",
        line=call.line,
        seconds=overhead,
        cures=(Cure("make 50 steps per call", _CODE, _BASIS, group_jax_steps(view, outside)),),
        evidence=(
            f"The device computes for {format_seconds(computing)} per step.",
            f"A step launches {view.device.kernels_per_step:.0f} operations.",
        ),
    )


def _only_call(view: CaptureView) -> CallSite | None:
    """Return the site of the compiled call that is made once per step; None if a step has others, or waits."""
    calls = [site for site in view.sites_of(EventKind.RUN) if site.in_loop]
    waits = [site for site in view.sites_of(*WAITS) if site.in_loop]
    eager = [site for site in view.sites_of(EventKind.OPS, EventKind.TRANSFORM) if site.in_loop]
    if len(calls) != 1 or waits or eager or framework_of(view, calls[0].api) != "jax":
        return None
    return calls[0] if len(calls[0].events) <= calls[0].steps else None


_BASIS = (
    "one call makes 50 steps; at best, their batches are on the device already, at worst the host makes them as now"
)
_CODE = (
    "@jax.jit\n"
    "def many_steps(state, batches):   # 50 batches, stacked; or their row numbers, if the data is on the device\n"
    "    return jax.lax.scan(lambda state, batch: (step(state, batch), None), state, batches)[0]"
)
