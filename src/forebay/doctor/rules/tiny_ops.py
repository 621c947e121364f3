"""The rule for many tiny operations from one line, such as a loop over elements."""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent
from forebay.doctor.predict.compile_cure_changes import CallingTime, compile_step
from forebay.doctor.rules.compile_edits import compile_statement
from forebay.doctor.rules.eager import MIN_OPERATIONS, calling_seconds, operations_per_step
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_compile, fit_line, fit_more_steps, keras_setting
from forebay.doctor.rules.precedence import RuleView

__all__ = ["examine", "recognises"]

# In a loop without compiled calls, at least this share of all operations must be tiny operations of one line. If the
# share is smaller, the rule `eager` may report the operations.
MIN_SHARE = 0.5


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether one line starts many tiny operations.

    A line that ends a step does not count, because `fit` and optimizers run their own loops. A script that transforms
    functions with JAX, for example by `jax.grad`, does not count either.
    """
    if any(step.line == site.line for step in view.sites_of(EventKind.STEP)) or any(view.sites_of(EventKind.TRANSFORM)):
        return False
    tiny = operations_per_step(site, "tiny")
    total = sum(operations_per_step(other) for other in view.sites_of(EventKind.OPS))
    has_compiled_call = any(run.in_loop for run in view.sites_of(EventKind.RUN))
    return tiny >= MIN_OPERATIONS and (has_compiled_call or tiny >= MIN_SHARE * total)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("tiny_ops"):
        tiny, count = operations_per_step(site, "tiny"), operations_per_step(site)
        least, most = (seconds * min(1.0, tiny / max(count, 1.0)) for seconds in calling_seconds(view, [site]))
        framework = framework_of(view, site.api)
        basis = f"{tiny:.0f} calls become a few"
        changes = compile_step(view, framework, CallingTime(least, most))
        yield Finding(
            rule="tiny_ops",
            title=f"One line starts {tiny:.0f} tiny operations per step",
            line=site.line,
            seconds=least,
            why_more="Without these operations, the Python code around them may disappear too.",
            cures=(
                Cure(
                    "use one operation for all elements",
                    _VECTOR_CODE.get(framework, _NUMPY_CODE),
                    basis,
                    changes,
                ),
                Cure(
                    "compile the loop",
                    _compile_code(view, site, framework),
                    basis,
                    changes,
                ),
            ),
            evidence=(
                f"{format_percent(min(1.0, tiny / count)) if count else 'Most'} of the {count:.0f} operations "
                "per step of this line are so short that calling one takes about as long as running it.",
            ),
        )


def _compile_code(view: CaptureView, site: CallSite, framework: str) -> str:
    """Return code that compiles the function of a line: an edit, else an example."""
    if framework == "keras" and keras_setting(view, "jit_compile") is not False:
        return fit_more_steps(view)
    fitted = fit_compile(view, site.line, framework) if framework != "torch" else ""
    if framework == "tensorflow" and not fitted:
        fitted = fit_line(view, site.line, compile_statement)
    return fitted or _COMPILE_CODE.get(framework, _COMPILE_CODE["torch"])


_NUMPY_CODE = "result = (rows * weights).sum(-1)   # replaces: for row, weight in zip(rows, weights)"
_VECTOR_CODE = {
    "tensorflow": "result = tf.vectorized_map(process_row, rows)   # replaces: for row in rows",
    "torch": "result = torch.vmap(process_row)(rows)   # replaces: for row in rows; "
    "for optimizers, set foreach=True or fused=True",
    "jax": "result = jax.vmap(process_row)(rows)   # replaces: for row in rows; use "
    "jax.lax.scan if each row needs the previous one",
}
_COMPILE_CODE = {
    "tensorflow": "@tf.function(jit_compile=True)\ndef step(rows): ...",
    "keras": "model.compile(..., jit_compile=True)",
    "torch": "step = torch.compile(step, mode='reduce-overhead')",
    "jax": "step = jax.jit(step)",
    "cupy": "@cupy.fuse()\ndef process_row(row, weight): ...",
}
