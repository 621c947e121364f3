"""The rule for debug settings that are on, or callbacks from compiled functions.

A capture shows the time of callbacks, of stacks that anomaly mode stores, and of operations that should be compiled.
The time of other settings is part of the operations that they slow down. The rule reports these settings without a
time, which `--verify` measures in a second run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.host_lines import host_lines
from forebay.doctor.analyse.phases import BACKWARD, parts_of_step
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import STORED_STACK, EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import remove_work
from forebay.doctor.rules import allocator
from forebay.doctor.rules.eager_settings import active_eager_settings, eager_finding
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.pause_edits import remove_expression
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.setting_effects import EFFECTS, VARIABLES
from forebay.doctor.rules.setting_spans import SettingSpan, find_span, switch_off
from forebay.doctor.rules.wording import frequency

__all__ = ["MEASURE_HINT", "NOT_EMULATED", "RULE", "examine", "find_setting", "recognises"]

RULE = "settings"
# Settings that `--verify` cannot switch off in a second run.
NOT_EMULATED = (DebugSetting.DATA_PARALLEL, DebugSetting.TRACE, DebugSetting.PROFILE)
MIN_VISIBLE_SHARE = 0.05  # share of a step; the rule reports no shorter time of callbacks and of anomaly mode
# Anomaly mode, measured on two cores with 25 layers and 32 or 512 rows (CPU time, 2026-11-18): it took 4.3 to 4.7 ms of
# a forward pass, of which samples showed 70% as formatting of stacks. Checks took 38 to 52% of a backward pass.
MAX_STACKS_FACTOR = 1.5  # most time of storing stacks, as a multiple of the sampled time of formatting them
MAX_CHECKED_SHARE = 0.55  # share of the backward pass that checks take at most
_NOT_MEASURED = "The recorded steps do not show what this costs. Run with --verify to measure it."
MEASURE_HINT = "; run with --verify to measure what this saves"  # at the end of the title of a cure
_NO_BASIS = "the recorded steps do not show what this cure saves"
_NOT_EMULATED = "The recorded steps do not show what this costs. Change it and compare the step times."
# Kinds of actions in which the host waits for compiled functions, and so for their callbacks.
_WAITING_KINDS = ("run", "download", "sync")
_DEBUG_CALLBACKS = "jax.debug."  # start of the API names of callbacks that only debug


@dataclass(frozen=True, slots=True)
class _ActiveSetting:
    """A setting that was on in the profiled steps."""

    setting: str  # a DebugSetting, an environment variable, or the API name of a callback
    finding: Finding


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a setting that disables compilation explains the operations of a call site."""
    return site.kind is EventKind.OPS and any(True for _ in active_eager_settings(view))


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per setting that was on, and one per slow callback."""
    yield from (active.finding for active in _active_settings(view))


def find_setting(view: RuleView, finding: Finding) -> str:
    """Return the setting of a finding of this rule; empty if there is none."""
    return next((active.setting for active in _active_settings(view) if active.finding.title == finding.title), "")


def _active_settings(view: RuleView) -> Iterator[_ActiveSetting]:
    if not view.step_seconds:
        return
    for setting, effect in EFFECTS.items():
        span = find_span(view, setting)
        if span is not None and (view.has_gpu or not effect.needs_gpu):
            yield _ActiveSetting(setting, _setting_finding(view, setting, span))
    for setting, line in active_eager_settings(view):
        yield _ActiveSetting(setting, eager_finding(view, setting, line))
    for name in _active_variables(view):
        yield _ActiveSetting(name, _variable_finding(name))
    for site in view.sites_of(EventKind.CALLBACK, EventKind.PREPARE):
        if site.in_loop and _is_callback(view, site):
            yield _ActiveSetting(site.api, _callback_finding(view, site))


def _setting_finding(view: CaptureView, setting: str, span: SettingSpan) -> Finding:
    effect, line = EFFECTS[setting], span.line
    where = f"It was on in {format_percent(span.share)} of the profiled steps."
    source = () if line is not None else ("No line of the script switched it on: see the environment.",)
    code = switch_off(view, line, setting, effect.code)
    title = f"{effect.name} {effect.verb} in every step"
    seconds = _stored_stack_seconds(view) if setting == DebugSetting.ANOMALY else 0.0
    if seconds >= MIN_VISIBLE_SHARE * view.step_seconds:
        most = _most_anomaly_seconds(view, seconds)
        basis = (
            "the cure saves at least the sampled time in which PyTorch formats stacks, and at most also the time in "
            "which it stores stacks and checks gradients. --verify measures this cure"
        )
        cure = Cure("switch it off", code, basis=basis, changes=remove_work(view, most, least=seconds))
        cost = (
            f"Formatting stacks takes {format_seconds(seconds)} per step. Storing them and checking "
            f"gradients takes more: together up to about {format_seconds(most)}. Run with --verify to measure it."
        )
        more = "Samples show only a part of what the setting costs."
        return Finding(RULE, title, line, seconds, (cure,), (cost, where, *source), why_more=more)
    is_emulated = setting not in NOT_EMULATED
    cure = Cure(f"switch it off{MEASURE_HINT if is_emulated else ''}", code, basis=_NO_BASIS)
    hint = _NOT_MEASURED if is_emulated else _NOT_EMULATED
    return Finding(RULE, title, line, 0.0, (cure,), (hint, where, *source))


def _stored_stack_seconds(view: CaptureView) -> float:
    """Return the seconds per step in which anomaly mode stored stacks."""
    calls = (call for host_line in host_lines(view) for call in host_line.functions)
    return sum(seconds for function, seconds in calls if function == STORED_STACK)


def _most_anomaly_seconds(view: CaptureView, formatting_seconds: float) -> float:
    """Return the most seconds per step that anomaly mode may take.

    It formats stacks for `formatting_seconds` of them.
    """
    parts = parts_of_step(view)
    total = sum(parts.values())
    scale = view.step_seconds / total if total else 0.0
    backward = parts.get(BACKWARD, 0.0) * scale
    stacks = min(MAX_STACKS_FACTOR * formatting_seconds, view.step_seconds - backward)
    return max(formatting_seconds, stacks + MAX_CHECKED_SHARE * backward)


def _active_variables(view: CaptureView) -> Iterator[str]:
    variables: Mapping[str, str] = view.capture.facts.get("settings") or {}
    # The rule `allocator` reports a variable that makes a framework allocate memory, with its cost.
    allocating = {cure.code.split()[1] for cure in _allocator_cures(view) if cure.code.startswith("unset ")}
    for name, effect in VARIABLES.items():
        has_needs = not effect.needs or (view.has_gpu if effect.needs == "gpu" else effect.needs in view.frameworks)
        is_on = name in variables and has_needs and effect.is_on(variables[name], variables)
        if is_on and name not in allocating:
            yield name


def _allocator_cures(view: CaptureView) -> Iterator[Cure]:
    return (cure for finding in allocator.examine(view) for cure in finding.cures)


def _variable_finding(name: str) -> Finding:
    title = f"The environment variable {name} {VARIABLES[name].verb} in every step"
    cure = Cure(f"unset the variable{MEASURE_HINT}", f"unset {name}", basis=_NO_BASIS)
    return Finding(RULE, title, None, 0.0, (cure,), (_NOT_MEASURED,))


def _is_callback(view: CaptureView, site: CallSite) -> bool:
    """Whether compiled code calls Python at a call site, to debug or for long.

    Calls of functions in tf.data are PREPARE events too, so these events count only if the loop takes no batches.
    """
    if _callback_seconds(view, site) < MIN_VISIBLE_SHARE * view.step_seconds:
        return site.api.startswith(_DEBUG_CALLBACKS)
    if site.kind is EventKind.CALLBACK:
        return True
    has_input = any(True for _ in view.sites_of(EventKind.INPUT))
    return site.api == "tf.py_function" and not has_input and any(True for _ in view.sites_of(EventKind.RUN))


def _callback_finding(view: CaptureView, site: CallSite) -> Finding:
    seconds = _callback_seconds(view, site)
    is_debugging = site.api.startswith(_DEBUG_CALLBACKS)
    text = site.line.text if site.line is not None and site.line.text else f"{site.api}(...)"
    action = "remove the call" if is_debugging else "compute this with operations of the framework"
    code = f"# replace {site.api} by compiled operations: {text}"
    if is_debugging:
        code = fit_line(view, site.line, remove_expression) or f"# remove this line: {text}"
    title = f"{site.api} runs Python code inside a compiled function {frequency(site)}"
    if seconds < MIN_VISIBLE_SHARE * view.step_seconds:
        cure = Cure(f"{action}{MEASURE_HINT}", code, basis=_NO_BASIS)
        return Finding(RULE, title, site.line, 0.0, (cure,), (_NOT_MEASURED,))
    basis = "the cure saves the measured time of the Python code; handing over its arguments takes more time"
    cure = Cure(action, code, basis=basis, changes=remove_work(view, seconds, kinds=_WAITING_KINDS))
    evidence = f"Compiled code waits for this Python code, {format_seconds(seconds)} per step."
    share = format_percent(seconds / view.step_seconds)
    return Finding(RULE, f"{title}, for {share} of the time", site.line, seconds, (cure,), (evidence,))


def _callback_seconds(view: CaptureView, site: CallSite) -> float:
    """Return the seconds that callbacks on any thread take in an unprofiled step."""
    profiled_seconds = max(view.profiled_seconds, view.step_seconds)
    return view.step_seconds * min(1.0, site.seconds / profiled_seconds) if profiled_seconds else 0.0
