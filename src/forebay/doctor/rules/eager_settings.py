"""Findings about settings that make a framework run compiled functions operation by operation."""

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of, unexplained_seconds
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.predict.cure_changes import remove_work
from forebay.doctor.rules.eager import calling_seconds, operations_per_step
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_keras_compile
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.setting_spans import find_span, switch_off

__all__ = ["EAGER_SETTINGS", "active_eager_settings", "eager_finding"]


# Kinds of actions of a timeline that may be Python time. Even if jit is disabled, the hooks record calls of jitted
# functions as "run".
_PYTHON_KINDS = ("work", "run")


@dataclass(frozen=True, slots=True)
class _EagerSetting:
    """A setting that disables compilation."""

    name: str  # as the user writes it
    code: str  # code that switches it off
    framework: str
    fact: str = ""  # key in `view.frameworks`; captures of version 0.1 have only this value, and no event


EAGER_SETTINGS: dict[str, _EagerSetting] = {
    DebugSetting.FUNCTIONS_EAGER: _EagerSetting(
        "tf.config.run_functions_eagerly(True)", "tf.config.run_functions_eagerly(False)", "tensorflow", "run_eagerly"
    ),
    DebugSetting.JIT_DISABLED: _EagerSetting(
        "jax_disable_jit",
        'jax.config.update("jax_disable_jit", False)   # and unset JAX_DISABLE_JIT',
        "jax",
        "jit_disabled",
    ),
    DebugSetting.MODEL_EAGER: _EagerSetting(
        "Model.compile(run_eagerly=True)", "model.compile(..., run_eagerly=False)", "keras"
    ),
}


def active_eager_settings(view: CaptureView) -> Iterator[tuple[str, Line | None]]:
    """Yield each setting that was on, and the line that switched it on, or None."""
    for setting, eager in EAGER_SETTINGS.items():
        span = find_span(view, setting)
        if span is not None:
            yield setting, span.line
        elif eager.fact and view.frameworks.get(eager.framework, {}).get(eager.fact):
            yield setting, None


def eager_finding(view: RuleView, setting: str, line: Line | None) -> Finding:
    """Return the finding for a setting that disables compilation."""
    eager = EAGER_SETTINGS[setting]
    sites = view.sites_for("settings", EventKind.OPS)
    count = sum(map(operations_per_step, sites))
    least, seconds = calling_seconds(view, sites) if sites else (0.0, _python_seconds(view))
    basis = "the cure saves at most the time in calls of jitted functions and outside of recorded events"
    if sites:
        basis = f"{count:.0f} calls become one"
    fitted = fit_keras_compile(view) if setting == DebugSetting.MODEL_EAGER else ""
    code = fitted or switch_off(view, line, setting, eager.code)
    changes = remove_work(view, seconds, least=least / 2, kinds=_PYTHON_KINDS)
    cure = Cure("enable compilation", code, basis=basis, changes=changes)
    title = f"{eager.name} runs every operation of compiled functions one by one"
    found = line or (max(sites, key=operations_per_step).line if sites else None)
    return Finding("settings", title, found, seconds, (cure,), ("The doctor read this setting from the framework.",))


def _python_seconds(view: CaptureView) -> float:
    """Return the seconds per step in calls of jitted functions and outside of recorded events."""
    runs = [event for site in view.sites_of(EventKind.RUN) for event in site.events]
    return min(view.step_seconds, unexplained_seconds(view) + cost_of(view, runs))
