"""A step that runs operation by operation, each through Python, where a compiled one would be a single call."""

from collections.abc import Iterator

from forebay.doctor.analyse.accusers import charged
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import unexplained
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.events import Kind

__all__ = ["FEWEST", "LAUNCHING", "SLOW", "examine", "launching", "operations", "recognises"]

FEWEST = 50  # operations a step
LEAST_SHARE = 0.1  # of a step spent on calling them, as XProf's limit for eager
# What a framework spends on calling one operation, before it does anything; measured, on a fast core.
CALL_SECONDS = {"torch": 4e-6, "tensorflow": 10e-6, "keras": 10e-6, "jax": 10e-6, "cupy": 5e-6}
SLOW = 3  # times that, on a slow core and with gradients
LAUNCHING = f"at least half of what calls take on a fast core, at most {SLOW} times that"


def recognises(case: Case, site: Site) -> bool:
    compiled = any(run.in_loop for run in case.of(Kind.RUN))
    total = sum(operations(other) for other in case.of(Kind.OPS))
    return not compiled and total >= FEWEST and launching(case, total, site.api) >= LEAST_SHARE * case.step_seconds


def operations(site: Site, name: str = "count") -> float:
    """Of a step; an event that does not say how many is one."""
    counts = [(event.detail or {}).get(name) for event in site.events]
    return sum((1 if name == "count" else 0) if count is None else count for count in counts) / site.steps


def launching(case: Case, count: float, api: str) -> float:
    """Seconds that so many calls take at least; never more than what of a step nothing else explains."""
    calling = count * CALL_SECONDS.get(framework_of(case, api), min(CALL_SECONDS.values()))
    return min(calling, unexplained(case))


def examine(case: Case) -> Iterator[Finding]:
    sites = charged(case, "eager")
    if not sites:
        return
    most = max(sites, key=operations)
    total = sum(map(operations, sites))
    framework = framework_of(case, most.api)
    least = launching(case, total, most.api)
    high = launching(case, total * SLOW, most.api)
    how = f"{total:.0f} calls become one; {LAUNCHING}"
    yield Finding(
        rule="eager",
        title=f"{total:.0f} operations a step are called one by one from Python",
        line=most.line,
        seconds=least,
        cures=(Cure("compile the step", _COMPILE.get(framework, _COMPILE["torch"]), least / 2, high, how),),
        evidence=("no compiled call was seen in the loop", *_lines(sites, total)),
    )


def _lines(sites: list[Site], total: float) -> Iterator[str]:
    for site in sorted(sites, key=operations, reverse=True)[:2]:
        yield f"{operations(site):.0f} of {total:.0f} from {site.line or site.api}"


_COMPILE = {
    "tensorflow": "@tf.function   # add jit_compile=True where shapes stay the same\ndef train_step(x, y): ...",
    "keras": "model.compile(..., jit_compile=True)   # and run_eagerly not set",
    "torch": "step = torch.compile(step)   # mode='reduce-overhead' uses CUDA graphs",
    "jax": "@jax.jit\ndef train_step(state, batch): ...",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...",
}
