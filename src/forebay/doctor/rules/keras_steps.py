"""The rule for short Keras steps in which calling and feeding takes long.

`Model.fit` on TensorFlow calls a compiled function in every step, reads its logs, and gets its batch from a `tf.data`
pipeline that Keras builds. `steps_per_execution` makes several steps in one call. A feed replaces the pipeline.
Without device records, the rule counts the time outside of the compiled function as overhead.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.device_time import seconds_per_step
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.compile_cure_changes import group_keras_steps, run_keras_steps
from forebay.doctor.rules import small_batch
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_more_steps, keras_setting
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import feed_code, feed_fits

__all__ = ["examine", "is_reported"]

FIT = "Model.fit"  # API name of a step of Keras
MAX_STEP_SECONDS = 10e-3  # in a longer step, the overhead of Keras is small
# Shares of the step; the rule does not report a smaller overhead. With device records, the overhead is the time in
# which the device does not compute. Without them, it is the time outside of the compiled function.
MIN_DEVICE_SHARE = 0.4
MIN_HOST_SHARE = 0.05


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield a finding if Keras runs short steps one by one, with a large overhead."""
    if not is_reported(view):
        return
    if view.device is None and any(small_batch.examine(view)):
        return  # `small_batch` reports these steps: in a larger batch, more rows share the overhead
    assert view.steps is not None
    overhead = _overhead_seconds(view)
    share = format_percent(overhead / view.step_seconds)
    host_title = f"Keras spends {share} of a short step outside of its compiled training function"
    device_title = f"Keras calls and feeds its training function for {share} of a step"
    yield Finding(
        rule="keras_steps",
        title=host_title if view.device is None else device_title,
        line=view.line(view.steps.anchor[2]),
        seconds=overhead,
        cures=tuple(_cures(view, overhead)),
        evidence=tuple(_evidence(view, overhead)),
        why_more="The cure also saves the part of the compiled function that is the cost of calling it.",
    )


def is_reported(view: CaptureView) -> bool:
    """Whether this rule explains the time of the steps, so that other rules do not."""
    if view.steps is None or view.steps.anchor[1] != FIT or view.step_seconds > MAX_STEP_SECONDS:
        return False
    is_tensorflow = view.capture.facts.get("keras_backend") == "tensorflow"
    has_single_steps = keras_setting(view, "steps_per_execution") in (1, None)
    if not is_tensorflow or keras_setting(view, "run_eagerly") or not has_single_steps:
        return False
    if view.device is not None:
        return _overhead_seconds(view) >= MIN_DEVICE_SHARE * view.step_seconds
    has_calls = any(site.in_loop for site in view.sites_of(EventKind.RUN))
    return not view.has_gpu and has_calls and _overhead_seconds(view) >= MIN_HOST_SHARE * view.step_seconds


def _overhead_seconds(view: CaptureView) -> float:
    """Return the seconds per step in which the device does not compute.

    Without device records, return the seconds outside of compiled calls, of waits for input and of compiling. In this
    time, Keras runs Python code and reads logs.
    """
    if view.device is not None:
        return max(0.0, view.step_seconds - seconds_per_step(view.device, view.device.working_intervals))
    inside = sum(view.host_parts[part] for part in ("compiled calls", "waiting for input", "compiling"))
    total = sum(view.host_parts.values())
    return view.step_seconds * max(0.0, 1 - inside / total) if total else 0.0


def _evidence(view: CaptureView, overhead: float) -> Iterator[str]:
    if view.device is None:
        compiled = view.step_seconds * view.host_parts["compiled calls"] / sum(view.host_parts.values())
        yield (
            f"The compiled function takes {format_seconds(compiled)} of {format_seconds(view.step_seconds)}. "
            "Part of this time is the cost of calling it."
        )
        return
    yield f"The device computes for {format_seconds(view.step_seconds - overhead)} per step."
    yield f"A step launches {view.device.kernels_per_step:.0f} operations."


def _cures(view: CaptureView, overhead: float) -> Iterator[Cure]:
    grouped = fit_more_steps(view)
    basis = "one Python call runs 50 steps, and Keras reads the logs once per call"
    if view.device is None:
        changes = group_keras_steps(view, overhead)
        yield Cure("make 50 steps per call", grouped, f"{basis}; callbacks run once per call", changes)
        return
    arrays = _array_input(view)
    if arrays is not None and feed_fits(view, "keras", arrays):
        feed, feed_basis = feed_code(view, "keras", arrays), "a feed replaces the pipeline that Keras builds"
        changes = run_keras_steps(view, is_grouped=True, is_fed=True)
        yield Cure("make 50 steps per call, on a feed", f"{grouped}\n{feed}", f"{basis}; {feed_basis}", changes)
        changes = run_keras_steps(view, is_grouped=False, is_fed=True)
        yield Cure("use a feed", feed, feed_basis, changes)
    changes = run_keras_steps(view, is_grouped=True, is_fed=arrays is None)
    yield Cure("make 50 steps per call", grouped, basis, changes)


def _array_input(view: CaptureView) -> CallSite | None:
    """Return the call site at which Keras takes batches from arrays; else None."""
    sites = view.sites_of(EventKind.INPUT)
    return next((site for site in sites if site.in_loop and "arrays" in site.values("loader")), None)
