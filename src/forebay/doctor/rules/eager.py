"""A step that runs operation by operation, each through Python, where a compiled one would be a single call."""

from collections.abc import Iterable, Iterator, Sequence

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import unexplained
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Event, Kind, Line
from forebay.doctor.predict.cure_changes import compiled
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import place

__all__ = ["FEWEST", "calling", "examine", "operations", "recognises", "told_how"]

FEWEST = 50  # operations a step
MOST_OF_IT = 0.5  # of a step spent on taking a function apart: then few operations are a reason too
LEAST_SHARE = 0.1  # of a step spent on calling them, as XProf's limit for eager
# What a framework spends on calling one operation, before it does anything; measured, on a fast core.
CALL_SECONDS = {"torch": 4e-6, "tensorflow": 10e-6, "keras": 10e-6, "jax": 10e-6, "cupy": 5e-6}
SLOW = 3  # times that, on a slow core and with gradients
TOP_LEVEL = "<module>"  # Python's name for what is in no function
LONG = 10  # times that: an operation which takes longer computes


def recognises(case: Case, site: Site) -> bool:
    compiled = any(run.in_loop for run in case.of(Kind.RUN))
    sites = list(case.of(Kind.OPS))
    enough = sum(map(operations, sites)) >= FEWEST or (_is_span(case) and _are_short(case, sites))
    enough = enough or _taken_apart(case, sites) >= MOST_OF_IT
    return not compiled and enough and calling(case, sites)[0] >= LEAST_SHARE * case.step_seconds


def _taken_apart(case: Case, sites: Sequence[Site]) -> float:
    """The share of the steps in which JAX takes functions apart to transform them, however few their operations are."""
    inside = _inside(case.of(Kind.TRANSFORM)) - _inside(sites)
    return inside * 1e9 / (case.steps.end - case.steps.start) if case.steps else 0.0


def _is_span(case: Case) -> bool:
    """Whether nothing marks a step, so that some milliseconds of operations count as one, however many they are."""
    return case.steps is not None and case.steps.anchor[0] == Kind.OPS


def _are_short(case: Case, sites: Sequence[Site]) -> bool:
    """Whether operations take about as long as calling them does: those that compute for long gain nothing by it.

    By the quickest of them: what computes for long always does, and what a busy core holds up is short at times.
    """
    return all(_quickest(site) <= LONG * _call_seconds(case, site) for site in sites)


def operations(site: Site, name: str = "count") -> float:
    """Of a step; an event that does not say how many is one."""
    return sum(_counted(event, name) for event in site.events) / site.steps


def _counted(event: Event, name: str = "count") -> float:
    count = (event.detail or {}).get(name)
    return (1 if name == "count" else 0) if count is None else count


def _quickest(site: Site) -> float:
    """Seconds an operation takes in the quickest tenth of all events."""
    each = sorted(event.seconds / max(1, _counted(event)) for event in site.events)
    return each[len(each) // 10] if each else 0.0


def calling(case: Case, sites: Sequence[Site]) -> tuple[float, float]:
    """Seconds of a step that go on calling operations, at least and at most; never more than nothing else explains.

    At least what Python did between one and the next, where that was seen, at most what operations take that compute
    nothing with it; else what calls take elsewhere. As a share of the step, so that a slow day of a machine changes
    nothing. What a transformation of JAX's does beside its operations is taking a function apart, which is Python too.
    """
    seen = sum(sum(site.values("calling_seconds")) for site in sites)
    seen = max(seen, _inside(case.of(Kind.TRANSFORM)) - _inside(sites)) if seen else seen
    if seen and case.steps:
        whole = (case.steps.end - case.steps.start) / 1e9
        most = sum(min(_inside([site]), SLOW * _called_seconds(case, site) * site.steps) for site in sites)
        low, high = (case.step_seconds * part / whole for part in (seen, seen + most))
    else:
        low = sum(_called_seconds(case, site) for site in sites)
        high = low * SLOW
    return min(low, unexplained(case)), min(high, unexplained(case))


def told_how(sites: Sequence[Site]) -> str:
    """What a win by fewer calls rests on."""
    if any(site.values("calling_seconds") for site in sites):
        return "at least half of what Python does between them, at most they themselves with it"
    return f"at least half of what calls take on a fast core, at most {SLOW} times that"


def _surely(case: Case, least: float) -> float:
    """What fewer calls win of this: half, or nothing where a GPU that nobody recorded may be what a step waits for."""
    return 0.0 if case.has_gpu and case.device is None else least / 2


def _inside(sites: Iterable[Site]) -> float:
    return sum(event.seconds for site in sites for event in site.events)


def _called_seconds(case: Case, site: Site) -> float:
    """What calling a step's operations takes on a fast core."""
    return operations(site) * _call_seconds(case, site)


def _call_seconds(case: Case, site: Site) -> float:
    return CALL_SECONDS.get(framework_of(case, site.api), min(CALL_SECONDS.values()))


def examine(case: Case) -> Iterator[Finding]:
    sites = charged(case, "eager")
    if not sites:
        return
    most = max(sites, key=operations)
    total = sum(map(operations, sites))
    framework = framework_of(case, most.api)
    least, high = calling(case, sites)
    how = f"{total:.0f} calls become one; {told_how(sites)}"
    one_call = compiled(case, framework, beside=_beside(sites))
    yield Finding(
        rule="eager",
        title=_title(case, total),
        line=_transforming_line(case) or most.line,
        seconds=least,
        cures=(
            Cure(
                "compile the step",
                _COMPILE.get(framework, _COMPILE["torch"]),
                _surely(case, least),
                high,
                how,
                one_call,
            ),
        ),
        evidence=("no compiled call was seen in the loop", *_lines(case, sites, total)),
    )


def _title(case: Case, total: float) -> str:
    transform = next((site for site in case.of(Kind.TRANSFORM) if site.in_loop), None)
    if transform is None or total >= FEWEST:
        return f"{total:.0f} operations a step are called one by one from Python"
    name = next((name for name in transform.values("function") if name), "a function")
    return f"{transform.api} takes {name} apart in every step, in Python: nothing is compiled"


def _beside(sites: Sequence[Site]) -> float:
    """Seconds of a step for operations that the script's top level calls beside those of its functions, which can be
    compiled where the loop around them cannot."""
    beside = [site for site in sites if site.line is not None and site.line.function == TOP_LEVEL]
    if len(beside) == len(sites):
        return 0.0
    calling = sum(sum(site.values("calling_seconds")) for site in beside)
    return (_inside(beside) + float(calling)) / sites[0].steps


def _transforming_line(case: Case) -> Line | None:
    """Where a gradient is taken: that is the step to compile, wherever its operations are written."""
    return next((site.line for site in case.of(Kind.TRANSFORM) if site.in_loop), None)


def _lines(case: Case, sites: list[Site], total: float) -> Iterator[str]:
    for site in sorted(sites, key=operations, reverse=True)[:2]:
        yield f"{operations(site):.0f} of {total:.0f} from {place(case, site.line, site.api)}"


_COMPILE = {
    "tensorflow": "@tf.function   # add jit_compile=True where shapes stay the same\ndef train_step(x, y): ...",
    "keras": "model.compile(..., jit_compile=True)   # and run_eagerly not set",
    "torch": "step = torch.compile(step)   # mode='reduce-overhead' uses CUDA graphs",
    "jax": "@jax.jit\ndef train_step(state, batch): ...",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...",
}
