"""The rule for steps that Python runs operation by operation, instead of one compiled call.

In loops of JAX, it also reports a few operations outside of compiled calls, because each takes Python at least 20 us.
"""

from collections.abc import Iterable, Iterator, Sequence

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.eager_time import EagerTime, eager_time
from forebay.doctor.analyse.framework import array_framework, framework_of, is_framework_function, is_module_traversal
from forebay.doctor.analyse.host_lines import host_lines
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.model.events import PYTHON_CODE, EventKind, LedgerEvent, Line
from forebay.doctor.predict.compile_cure_changes import (
    CallingTime,
    compile_eager_step,
    compile_part,
    compile_step_with_xla,
)
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import CompiledStep, fit_compiled_step, fit_keras_compile, keras_setting
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import location
from forebay.doctor.rules.xla_edits import supports_xla, with_xla

__all__ = ["MIN_OPERATIONS", "calling_seconds", "examine", "operations_per_step", "recognises"]

MIN_OPERATIONS = 50  # operations per step; the rule reports fewer only in the cases that `recognises` lists
MIN_OF_TENSORFLOW = 20  # operations of TensorFlow per step that are enough if they take MIN_SHARE_OF_TENSORFLOW
MIN_SHARE_OF_TENSORFLOW = 0.4  # share of the step that calling fewer than MIN_OPERATIONS must take
MIN_OF_JAX = 3  # operations of JAX per step that are enough, whether or not the loop also makes compiled calls
TRANSFORM_SHARE = 0.5  # share of a step; if JAX transforms functions for so long, any number of operations is enough
MIN_CALLING_SHARE = 0.05  # share of a step that calling operations of JAX must take; with less, they mainly compute
MIN_REPORTED_SHARE = 0.1  # share of a step that calling operations must take, as in XProf for eager execution
# Measured overhead of one operation call, in seconds, on a fast core.
CALL_SECONDS = {"torch": 4e-6, "tensorflow": 10e-6, "keras": 10e-6, "jax": 10e-6, "cupy": 5e-6}
SLOW_CORE_FACTOR = 3  # times CALL_SECONDS; on a slow core and with gradients, a call takes up to this long
WHOLE_SHARE = 0.9  # share of the operations; below it, the report says that the code compiles a part of the step
LONG_CALL_FACTOR = 10  # times CALL_SECONDS; an operation that takes longer mainly computes


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether the loop calls many operations one by one, and this takes a reportable share.

    The loop must call at least MIN_OPERATIONS per step and no compiled function, with four exceptions:

    - If JAX transforms functions (`jax.grad`, `jax.vmap`) for TRANSFORM_SHARE of a step, any number is enough.
    - If no call marks a step, one OPS event counts as a step. Its number of operations is then arbitrary, so the rule
      requires short operations instead.
    - In TensorFlow, MIN_OF_TENSORFLOW operations are enough if a call marks a step, and calling the operations takes
      MIN_SHARE_OF_TENSORFLOW of the step.
    - In JAX, MIN_OF_JAX operations are enough, and the loop may also call compiled functions.
    """
    sites = list(view.sites_of(EventKind.OPS))
    count, (least, most) = sum(map(operations_per_step, sites)), calling_seconds(view, sites)
    if framework_of(view, site.api) == "jax" and count >= MIN_OF_JAX and most >= _reported_seconds(view):
        return least >= MIN_CALLING_SHARE * view.step_seconds
    is_eager = count >= MIN_OPERATIONS or (_is_step_inferred(view) and _are_short(view, sites))
    if framework_of(view, site.api) == "tensorflow" and count >= MIN_OF_TENSORFLOW and not _is_step_inferred(view):
        is_eager = is_eager or least >= MIN_SHARE_OF_TENSORFLOW * view.step_seconds
    is_eager = is_eager or _transform_share(view, sites) >= TRANSFORM_SHARE
    return is_eager and not _compiled_calls(view) and least >= _reported_seconds(view)


def _reported_seconds(view: CaptureView) -> float:
    return MIN_REPORTED_SHARE * view.step_seconds


def _compiled_calls(view: CaptureView) -> list[CallSite]:
    return [run for run in view.sites_of(EventKind.RUN) if run.in_loop]


def _transform_share(view: CaptureView, sites: Sequence[CallSite]) -> float:
    """Return the share of the profiled steps in which JAX transforms functions.

    The time of the operations inside these functions does not count.
    """
    seconds = _total_seconds(view.sites_of(EventKind.TRANSFORM)) - _total_seconds(sites)
    return seconds * 1e9 / (view.steps.end - view.steps.start) if view.steps else 0.0


def _is_step_inferred(view: CaptureView) -> bool:
    """Whether the doctor inferred the steps from operations, because no call marks a step."""
    return view.steps is not None and view.steps.anchor[0] == EventKind.OPS


def _are_short(view: CaptureView, sites: Sequence[CallSite]) -> bool:
    """Whether operations are so short on host and device that compilation may help.

    The fastest operations decide: a long computation is always long, but a busy core delays only some calls.
    """
    on_device = _device_operation_seconds(view, sites)
    return all(
        max(on_device, _fast_operation_seconds(site)) <= LONG_CALL_FACTOR * _call_seconds(view, site) for site in sites
    )


def _device_operation_seconds(view: CaptureView, sites: Sequence[CallSite]) -> float:
    """Return the device's mean seconds per operation in the recorded steps; 0 if unknown."""
    if view.device is None:
        return 0.0
    start, end = view.device.edges[0], view.device.edges[-1]
    events = (event for event in view.events_of(EventKind.OPS) if start <= event.start < end)
    apis = {site.api for site in sites}
    count = sum(_operation_count(event) for event in events if event.api in apis)
    return view.device.working_intervals.length / 1e9 / count if count else 0.0


def operations_per_step(site: CallSite, name: str = "count") -> float:
    """Return the operations per step.

    `name` selects the counter: "count" for all operations, "tiny" for very short operations (see `hooks.op_counter`).
    """
    return sum(_operation_count(event, name) for event in site.events) / site.steps


def _operation_count(event: LedgerEvent, name: str = "count") -> float:
    """Return a counter of an event; an event without counters is one operation."""
    count = (event.detail or {}).get(name)
    return (1 if name == "count" else 0) if count is None else count


def _fast_operation_seconds(site: CallSite) -> float:
    """Return the seconds per operation at the tenth percentile of all events."""
    seconds = sorted(event.seconds / max(1, _operation_count(event)) for event in site.events)
    return seconds[len(seconds) // 10] if seconds else 0.0


def calling_seconds(
    view: CaptureView, sites: Sequence[CallSite], transforms: Sequence[CallSite] | None = None
) -> tuple[float, float]:
    """Return the seconds per step spent on calling operations, at least and at most.

    If the hooks measured the Python time between operations, the minimum is this time, or the time in which JAX
    transforms functions if that is longer. The maximum adds the call overhead of the operations. Both are scaled from
    the profiled steps to `step_seconds`. `transforms` are the call sites of the transforms, or None for all of them.

    If the hooks measured no Python time, both values are estimates from CALL_SECONDS. In JAX, the maximum is at least
    the time of the lines that call operations, because JAX prepares each operation in Python. Neither value exceeds
    `unexplained_seconds`.
    """
    transforms = [*view.sites_of(EventKind.TRANSFORM)] if transforms is None else transforms
    python_seconds = sum(sum(site.values("calling_seconds")) for site in sites)
    python_seconds = (
        max(python_seconds, _total_seconds(transforms) - _total_seconds(sites)) if python_seconds else python_seconds
    )
    if python_seconds and view.steps:
        total_seconds = (view.steps.end - view.steps.start) / 1e9
        most_overhead = sum(
            min(_total_seconds([site]), SLOW_CORE_FACTOR * _fast_core_seconds(view, site) * site.steps)
            for site in sites
        )
        low, high = (
            view.step_seconds * part / total_seconds for part in (python_seconds, python_seconds + most_overhead)
        )
    else:
        low = sum(_fast_core_seconds(view, site) for site in sites)
        high = low * SLOW_CORE_FACTOR
    if sites and framework_of(view, sites[0].api) == "jax":
        high = max(high, _seconds_of_lines(view, [*sites, *(site for site in transforms if site.in_loop)]))
    return min(low, unexplained_seconds(view)), min(high, unexplained_seconds(view))


def _seconds_of_lines(view: CaptureView, sites: Sequence[CallSite]) -> float:
    """Return the seconds per step on the lines of these call sites, from samples.

    Samples in recorded calls do not count. Neither do samples in other libraries, such as NumPy, and samples that
    `nnx_modules` reports.
    """
    lines = {site.line for site in sites}
    functions = (each for host_line in host_lines(view) if host_line.line in lines for each in host_line.functions)
    return sum(seconds for function, seconds in functions if _belongs_to_operations(function))


def _belongs_to_operations(function: str) -> bool:
    if function in ("", PYTHON_CODE):
        return True
    return is_framework_function(function) and not is_module_traversal(function)


def _total_seconds(sites: Iterable[CallSite]) -> float:
    return sum(event.seconds for site in sites for event in site.events)


def _fast_core_seconds(view: CaptureView, site: CallSite) -> float:
    """Return the seconds per step of operation calls on a fast core."""
    return operations_per_step(site) * _call_seconds(view, site)


def _call_seconds(view: CaptureView, site: CallSite) -> float:
    """Return the seconds of one operation call on a fast core."""
    return CALL_SECONDS.get(framework_of(view, site.api), min(CALL_SECONDS.values()))


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding for all operations of the step."""
    sites = view.sites_for("eager")
    if not sites:
        return
    main_site = max(sites, key=lambda site: (round(operations_per_step(site)), site.seconds))
    total = sum(map(operations_per_step, sites))
    framework = framework_of(view, main_site.api)
    least, _ = calling_seconds(view, sites)
    compiled, time = _compiled_calls(view), eager_time(view, sites)
    yield Finding(
        rule="eager",
        title=_title(view, total),
        line=_transform_line(view) or main_site.line,
        seconds=time.call_overhead if time is not None and time.computing is not None else least,
        cures=tuple(_cures(view, sites, framework, time)),
        evidence=(_describe_compiled(compiled), *_main_lines_evidence(view, sites, total)),
        why_more="A compiled step may also compute faster, because it runs fewer and larger operations.",
    )


def _cures(view: CaptureView, sites: Sequence[CallSite], framework: str, time: EagerTime | None) -> Iterator[Cure]:
    """Yield the cure that compiles the step, and the cure that compiles it with XLA if that fits the script."""
    step = _compiled_step(view, sites, framework)
    yield _compile_cure(view, sites, framework, time, step)
    code = script_code(view, _step_line(view))
    is_whole = _compiled_share(view, sites, step) >= WHOLE_SHARE
    if framework != "tensorflow" or view.device is None or code is None or not is_whole or not supports_xla(code):
        return
    if text := with_xla(step.code):
        basis = f"{sum(map(operations_per_step, sites)):.0f} calls become one program; its shapes must stay the same"
        yield Cure("compile the step with XLA", text, basis, compile_step_with_xla(view))


def _step_line(view: CaptureView) -> Line | None:
    return view.line(view.steps.anchor[2]) if view.steps else None


def _compile_cure(
    view: CaptureView, sites: Sequence[CallSite], framework: str, time: EagerTime | None, step: CompiledStep
) -> Cure:
    """Return the cure that compiles the step, or the part that its code can compile."""
    inside = [site for site in sites if step.contains(site.line)]
    total, count = sum(map(operations_per_step, sites)), sum(map(operations_per_step, inside))
    becomes = "part of a compiled one" if _compiled_calls(view) else "one"
    if _compiled_share(view, sites, step) >= WHOLE_SHARE:
        title = "move the operations into a jitted function" if _compiled_calls(view) else "compile the step"
        changes = compile_eager_step(view, framework, CallingTime(*calling_seconds(view, sites)), time)
        return Cure(title, step.code, f"{total:.0f} calls become {becomes}", changes)
    transforms = [site for site in view.sites_of(EventKind.TRANSFORM) if step.contains(site.line)]
    calling = CallingTime(*calling_seconds(view, inside, transforms))
    basis = f"{count:.0f} of {total:.0f} calls become {becomes}; the others remain"
    return Cure("compile a part of the step", step.code, basis, compile_part(view, calling))


def _compiled_share(view: CaptureView, sites: Sequence[CallSite], step: CompiledStep) -> float:
    """Return the share of the operations that the code of `step` compiles.

    A call that transforms a function in the loop counts as much as all operations together.
    """
    transforms = [site for site in view.sites_of(EventKind.TRANSFORM) if site.in_loop]
    everything = [(site, operations_per_step(site)) for site in sites]
    everything += [(site, max(1.0, sum(count for _, count in everything))) for site in transforms]
    total = sum(count for _, count in everything)
    return sum(count for site, count in everything if step.contains(site.line)) / total if total else 1.0


def _describe_compiled(compiled: Sequence[CallSite]) -> str:
    """Return a sentence about the compiled functions that the loop calls."""
    names = dict.fromkeys(str(name) for site in compiled for name in site.values("function")[:1])
    if not compiled:
        return "The loop makes no compiled call."
    return f"The operations run outside of the compiled functions of the loop ({', '.join(names) or compiled[0].api})."


def _compiled_step(view: CaptureView, sites: Sequence[CallSite], framework: str) -> CompiledStep:
    """Return code that compiles the step: an edit of the script, else an example."""
    if framework == "keras" or keras_setting(view, "run_eagerly"):
        jit = {"jit_compile": "True"} if keras_setting(view, "jit_compile") is False else {}
        if code := fit_keras_compile(view, **({} if keras_setting(view, "run_eagerly") else jit)):
            return CompiledStep(code)
    lines = [_transform_line(view), *(site.line for site in sorted(sites, key=operations_per_step, reverse=True))]
    arrays = array_framework(view, sites[0].api)
    fitted = fit_compiled_step(
        view,
        [line for line in lines if line is not None],
        arrays,
        lambda step: round(_compiled_share(view, sites, step), 2),
    )
    return fitted if fitted.code else CompiledStep(_COMPILE_CODE.get(framework, _COMPILE_CODE["torch"]))


def _title(view: CaptureView, total: float) -> str:
    transform = next((site for site in view.sites_of(EventKind.TRANSFORM) if site.in_loop), None)
    if transform is None or total >= MIN_OPERATIONS:
        where = " outside of jax.jit" if _compiled_calls(view) else ""
        return f"{total:.0f} operations per step are called one by one from Python{where}"
    name = next((name for name in transform.values("function") if name), "a function")
    what = "the gradient is not compiled" if "grad" in transform.api else "the result is not compiled"
    what = what if _compiled_calls(view) else "nothing is compiled"
    return f"{transform.api} transforms {name} in Python in every step; {what}"


def _transform_line(view: CaptureView) -> Line | None:
    """Return the line that transforms a function, as `jax.grad(loss)` does; else None."""
    return next((site.line for site in view.sites_of(EventKind.TRANSFORM) if site.in_loop), None)


def _main_lines_evidence(view: CaptureView, sites: list[CallSite], total: float) -> Iterator[str]:
    """Yield a sentence for each of the two lines with the most operations."""
    for site in sorted(sites, key=operations_per_step, reverse=True)[:2]:
        yield (
            f"{operations_per_step(site):.0f} of {total:.0f} operations come "
            f"from {location(view, site.line, site.api)}."
        )


_COMPILE_CODE = {
    "tensorflow": "@tf.function   # add jit_compile=True if shapes are constant\ndef train_step(x, y): ...",
    "keras": "model.compile(..., jit_compile=True)   # and do not set run_eagerly",
    "torch": "step = torch.compile(step)   # mode='reduce-overhead' uses CUDA graphs",
    "jax": "@jax.jit\ndef train_step(state, batch): ...",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...",
}
