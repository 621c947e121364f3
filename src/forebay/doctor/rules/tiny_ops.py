"""Many operations that take less than their launch: a Python loop over elements, where one operation would do."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import percent
from forebay.doctor.predict.cure_changes import compiled
from forebay.doctor.rules.eager import FEWEST, calling, operations, told_how
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged

__all__ = ["examine", "recognises"]

LEAST_SHARE = 0.5  # of all operations: from one line they are a loop, from many lines they are an eager step


def recognises(case: Case, site: Site) -> bool:
    """Not where a step ends: a `fit` or an optimizer has its own loop, which is the step's; nor beside a gradient."""
    if any(step.line == site.line for step in case.of(Kind.STEP)) or any(case.of(Kind.TRANSFORM)):
        return False
    tiny = operations(site, "tiny")
    total = sum(operations(other) for other in case.of(Kind.OPS))
    compiled = any(run.in_loop for run in case.of(Kind.RUN))
    return tiny >= FEWEST and (compiled or tiny >= LEAST_SHARE * total)


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "tiny_ops"):
        tiny, count = operations(site, "tiny"), operations(site)
        least, high = (seconds * min(1.0, tiny / max(count, 1.0)) for seconds in calling(case, [site]))
        framework = framework_of(case, site.api)
        how = f"{tiny:.0f} calls become a few; {told_how([site])}"
        one_call = compiled(case, framework)
        yield Finding(
            rule="tiny_ops",
            title=f"One line starts {tiny:.0f} tiny operations a step",
            line=site.line,
            seconds=least,
            cures=(
                Cure(
                    "one operation over all elements",
                    _VECTORISED.get(framework, _NUMPY),
                    least / 2,
                    high,
                    how,
                    one_call,
                ),
                Cure("compile the loop", _COMPILED.get(framework, _COMPILED["torch"]), least / 2, high, how, one_call),
            ),
            evidence=(
                f"{percent(min(1.0, tiny / count)) if count else 'most'} of {count:.0f} take less than a launch",
            ),
        )


_NUMPY = "result = (rows * weights).sum(-1)   # not: for row, weight in zip(rows, weights)"
_VECTORISED = {
    "tensorflow": "result = tf.vectorized_map(one, rows)   # not: for row in rows",
    "torch": "result = torch.vmap(one)(rows)   # not: for row in rows; optimizers: foreach=True or fused=True",
    "jax": "result = jax.vmap(one)(rows)   # not: for row in rows; jax.lax.scan where each needs the one before",
}
_COMPILED = {
    "tensorflow": "@tf.function(jit_compile=True)\ndef step(rows): ...",
    "keras": "model.compile(..., jit_compile=True)",
    "torch": "step = torch.compile(step, mode='reduce-overhead')",
    "jax": "step = jax.jit(step)",
    "cupy": "@cupy.fuse()\ndef one(row, weight): ...",
}
