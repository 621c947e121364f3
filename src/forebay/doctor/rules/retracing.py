"""The rule for functions that a framework compiles repeatedly in the loop."""

from collections import Counter
from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_count, format_seconds
from forebay.doctor.predict.cure_changes import remove_calls
from forebay.doctor.rules.build_edits import build_once, pass_arrays
from forebay.doctor.rules.compile_edits import retrace_less
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import most_frequent_function

__all__ = ["examine", "recognises"]

MIN_COMPILATIONS = 3  # of one function in the profiled steps; a smaller last batch alone causes one compilation

_REASONS = {
    "shape": "the shapes of its arguments change",
    "dtype": "the dtypes of its arguments change",
    "value": "the value of a Python argument changes",
    "first": "it is created again each time",
}


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site compiles one function repeatedly, and still does so late.

    Compilations in the first half of the profiled steps alone do not count. A loop may compile for new shapes at first,
    for example for those of a validation, and never again.
    """
    middle = (view.steps.start + view.steps.end) / 2 if view.steps else 0
    is_recurring = any(event.end > middle for event in site.events)
    return is_recurring and most_frequent_function(site)[1] >= MIN_COMPILATIONS


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("retracing"):
        cost, reason = cost_of(view, site.events), _main_reason(site)
        name, count = most_frequent_function(site)
        because = f", because {_REASONS[reason]}" if reason in _REASONS else ""
        times = f"{count} times in {site.steps} steps"
        basis = "the framework compiles the function once; one function for all arguments may be slower"
        known_reason = reason if reason in _CURE_TITLES else "shape"
        framework = framework_of(view, site.api)
        code = _fitted_code(view, site, framework, reason)
        code = code or _FRAMEWORK_CODE.get((framework, reason)) or _GENERAL_CODE[known_reason]
        changes = remove_calls(view, site)
        yield Finding(
            rule="retracing",
            title=f"{name or site.api} is compiled {times}{because}",
            line=site.line,
            seconds=cost,
            cures=(Cure(_CURE_TITLES[known_reason], code, basis, changes),),
            evidence=(
                f"Each compilation takes {format_seconds(_seconds_per_compilation(site))}.",
                *_signature_evidence(site),
            ),
        )


def _fitted_code(view: CaptureView, site: CallSite, framework: str, reason: str) -> str:
    """Return an edit of the script, as text; empty if there is none."""
    name = most_frequent_function(site)[0]
    if reason == "first":
        return fit_line(view, site.line, build_once)
    if reason == "value":
        return fit_line(view, site.line, lambda code, number: pass_arrays(code, number, framework))
    if any(event.api == "Model.compile" for event in view.events_of(EventKind.BUILD)):
        return _GENERAL_CODE["shape"] if reason == "shape" else ""  # Keras compiles the step itself
    setting = {"tensorflow": {"reduce_retracing": "True"}, "torch": {"dynamic": "True"}}.get(framework)
    if reason != "shape" or setting is None:
        return ""
    return fit_line(view, site.line, lambda code, number: retrace_less(code, number, name, **setting))


def _main_reason(site: CallSite) -> str:
    """Return the most frequent reason for a compilation, or an empty string."""
    reasons = Counter(str(reason) for reason in site.values("reason") if reason)
    return reasons.most_common(1)[0][0] if reasons else ""


def _seconds_per_compilation(site: CallSite) -> float:
    return sum(event.seconds for event in site.events) / len(site.events)


def _signature_evidence(site: CallSite) -> Iterator[str]:
    """Yield a sentence with the last two argument signatures, if any were recorded."""
    signatures = [str(signature) for signature in site.values("signature") if signature]
    if signatures:
        yield (
            f"The doctor saw {format_count(len(set(signatures)), 'signature')} of arguments, for "
            f"example {'; '.join(dict.fromkeys(signatures[-2:]))}."
        )


_CURE_TITLES = {
    "shape": "keep shapes constant, or compile for any shape",
    "dtype": "keep dtypes constant",
    "value": "pass numbers as tensors, not as Python numbers",
    "first": "create the compiled function once",
}
_GENERAL_CODE = {
    "shape": "x = np.pad(x, [(0, LONGEST - len(x))] + [(0, 0)] * (x.ndim - 1))   # and drop_remainder=True for batches",
    "dtype": 'x = x.astype("float32")   # the same dtype in every step',
    "value": "step(np.asarray(number))   # an array: only its shape and dtype matter",
    "first": "compiled = ...   # create it before the loop, call it inside",
}
_FRAMEWORK_CODE = {
    ("tensorflow", "shape"): "@tf.function(reduce_retracing=True)   # or input_signature=[tf.TensorSpec([None, 64])]\n"
    "def train_step(x): ...",
    ("tensorflow", "value"): "train_step(x, tf.constant(rate))   # each Python number needs a new graph",
    ("torch", "shape"): "step = torch.compile(step, dynamic=True)",
    ("torch", "value"): "step(x, torch.tensor(rate))   # a Python number is compiled into the graph",
    ("jax", "value"): "step(x, jnp.float32(rate))   # and remove `rate` from static_argnums",
    ("jax", "first"): "step = jax.jit(step)   # before the loop; a lambda created inside is a new function each time",
    ("tensorflow", "first"): "step = tf.function(step)   # before the loop",
    ("torch", "first"): "step = torch.compile(step)   # before the loop",
}
