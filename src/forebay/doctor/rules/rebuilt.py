"""The rule for objects that the loop rebuilds: pipelines, sessions, loaders, compiled functions."""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.analyse.host_lines import host_lines
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import Changes, call_on_batches, remove_calls
from forebay.doctor.rules.build_edits import call_on_batch, keep_iterator
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_build_once, fit_line
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import calls_per_step, most_frequent_function, source_text

__all__ = ["examine", "recognises"]

MIN_BUILDS = 3  # builds in the profiled steps; fewer are normal, such as one per epoch
ITERATOR = "iterator"  # the iterator of a loader; creating it starts the workers
PIPELINES = frozenset({"Dataset", "DataLoader", ITERATOR})
PIPELINES_PER_CALL = 2  # Keras builds an iterator at the start of an epoch and another at its end
MIN_CALLS_PER_STEP = 0.9  # calls of Keras; with fewer, a call may handle several batches
KERAS_CALLS = frozenset({"Model.fit", "Model.predict", "Model.evaluate"})
MODEL = "Model"  # a Keras model; calling `compile` again discards the functions that `fit` has compiled
FUNCTIONS = frozenset({"function", "jit", MODEL})
STAGE_PREFIX = "Dataset_"  # start of the names of functions that TensorFlow compiles for stages of a pipeline
# Kind of an event -> the new objects that can cause it. Iteration starts a new pipeline, the first call compiles a
# new function, and the first run of a new session prepares its graph.
_CAUSES = {EventKind.INPUT: PIPELINES, EventKind.COMPILE: FUNCTIONS, EventKind.RUN: frozenset({"Session"})}


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site builds objects repeatedly, or does work that repeated builds cause.

    Builds cause the work of a call site if they make objects of `_causes(site)`, and if there is at least one such
    build for every two events of the call site.
    """
    if site.kind is EventKind.BUILD:
        return _is_repeated(site)
    if site.kind is EventKind.RUN and not any(site.values("first")):
        return False
    causes = _causes(site)
    builds = [
        build for build in view.sites_of(EventKind.BUILD) if _is_repeated(build) and _built_object(build) in causes
    ]
    return sum(len(build.events) for build in builds) >= len(site.events) / 2


def _causes(site: CallSite) -> frozenset[str]:
    """Return the kinds of new objects that may cause the events of a call site.

    TensorFlow compiles the functions of a pipeline, such as that of a map, whenever the pipeline is built.
    """
    functions = [str(name) for name in site.values("function")]
    if site.kind is EventKind.COMPILE and functions and all(name.startswith(STAGE_PREFIX) for name in functions):
        return PIPELINES
    return _CAUSES.get(site.kind, frozenset())


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site that builds objects repeatedly.

    Its cost includes the later work that the builds cause. If builds at several call sites can cause the same later
    work, only the first finding includes this work.
    """
    builds = sorted(view.sites_for("rebuilt", EventKind.BUILD), key=lambda build: _built_object(build) != MODEL)
    unassigned = [site for kind in _CAUSES for site in view.sites_for("rebuilt", kind)]
    loaders = [build for build in builds if _built_object(build) in PIPELINES - {ITERATOR}]
    keras_calls = [build for build in builds if _is_called_per_batch(build)]
    if keras_calls:
        lines = {build.line for build in keras_calls} - {None}
        later_sites = [site for site in unassigned if PIPELINES & _causes(site) and site.line in lines]
        unassigned = [site for site in unassigned if site not in later_sites]
        yield _keras_finding(view, keras_calls, later_sites)
    for build in builds:
        if build in keras_calls:
            continue
        if _built_object(build) == ITERATOR and loaders:
            continue  # the finding about the loader includes its iterators
        later_sites = [site for site in unassigned if _built_object(build) in _causes(site)]
        unassigned = [site for site in unassigned if site not in later_sites]
        if build in loaders[:1]:
            later_sites += [other for other in builds if _built_object(other) == ITERATOR and other not in keras_calls]
        yield _finding(view, build, later_sites)


def _is_called_per_batch(build: CallSite) -> bool:
    """Whether the script calls Keras for each batch, which builds a pipeline each time."""
    is_keras = _built_object(build) == ITERATOR and build.api in KERAS_CALLS
    per_step = _keras_calls_per_step(build) if build.api == "Model.fit" else calls_per_step(build)
    return is_keras and per_step >= MIN_CALLS_PER_STEP


def _keras_calls_per_step(build: CallSite) -> float:
    """Return how often a line calls `fit`, `predict` or `evaluate` in a step."""
    numbers = {*build.values("fit")}  # one number for each call of `fit`
    return len(numbers) / max(1, build.steps) if numbers else calls_per_step(build) / PIPELINES_PER_CALL


def _finding(view: CaptureView, site: CallSite, later_sites: list[CallSite]) -> Finding:
    """Build the finding for a call site that builds objects, and for later work.

    The cost includes all work at `later_sites`, which the builds cause, but a cure may not remove all of this work. A
    pipeline that is built once still makes every batch, and a session that is built once still executes every run.
    """
    later_events = [event for later in later_sites for event in later.events]
    building, cost = cost_of(view, site.events), cost_of(view, [*site.events, *later_events])
    times = f"{calls_per_step(site) * site.steps:.0f} times in {site.steps} steps"
    basis = "the object is built once; at best, the work that follows each build disappears too"
    return Finding(
        rule="rebuilt",
        title=f"{site.api} builds a new {_built_object(site)} {times}",
        line=site.line,
        seconds=cost,
        cures=(Cure(*_cure(view, site), basis, _changes(view, site, later_sites)),),
        evidence=(
            f"Building it takes {format_seconds(building)} per step, and the work that "
            f"follows takes {format_seconds(max(0.0, cost - building))}.",
        ),
    )


def _keras_finding(view: CaptureView, calls: list[CallSite], later_sites: list[CallSite]) -> Finding:
    """Build the finding for calls of Keras in a loop that each build a pipeline."""
    calls = sorted(calls, key=lambda site: -cost_of(view, site.events))
    lines = {site.line for site in calls} - {None}
    python = sum(each.seconds for each in host_lines(view) if each.line in lines)
    recorded = cost_of(view, [event for site in (*calls, *later_sites) for event in site.events])
    sites = [site for site in view.sites if site.line in lines]  # includes the later work on these lines
    names = " or ".join(sorted({site.api for site in calls}))
    fitted = [fit_line(view, line, call_on_batch) for line in dict.fromkeys(site.line for site in calls)]
    takes_arrays = all(
        loader == "arrays" for site in sites if site.kind is EventKind.INPUT for loader in site.values("loader")
    )
    return Finding(
        rule="rebuilt",
        title=f"Every call of {names} in the loop builds a new pipeline",
        line=calls[0].line,
        seconds=recorded + python,
        cures=(
            Cure(
                "use the methods for one batch, which need no pipeline",
                "\n".join(fitted) if takes_arrays and all(fitted) else _ON_BATCH_CODE,
                "Keras then builds no pipeline; at worst, compiled functions and uploads take as long as now",
                call_on_batches(view, sites, python, sum(map(_keras_calls_per_step, calls))),
            ),
        ),
        evidence=(
            f"The pipelines take {format_seconds(recorded)} per step, and Python code on these lines "
            f"{format_seconds(python)}.",
        ),
    )


def _changes(view: CaptureView, site: CallSite, later_sites: list[CallSite]) -> Changes:
    """Return the outcomes of building the object once.

    Later compilation always disappears, because only new objects are compiled. Other later work may remain.
    """
    is_function = _built_object(site) in FUNCTIONS
    certain = [later for later in later_sites if is_function or later.kind is EventKind.COMPILE]
    return remove_calls(view, site, *certain, later_sites=tuple(later for later in later_sites if later not in certain))


def _is_repeated(build: CallSite) -> bool:
    """Whether a line builds the same function, or other objects, at least MIN_BUILDS times.

    Functions are the same if they have the same name. All objects without a function name, such as pipelines, count
    together. A call of `fit` builds one object per epoch and per validation. These do not count if the script calls
    `fit` only once or twice.
    """
    is_in_few_fits = 0 < len({*build.values("fit")}) < MIN_BUILDS  # "fit" is the number of the `fit` call
    return most_frequent_function(build)[1] >= MIN_BUILDS and not is_in_few_fits


def _cure(view: CaptureView, site: CallSite) -> tuple[str, str]:
    """Return the title and the code of the cure."""
    framework = framework_of(view, site.api)
    if _built_object(site) == ITERATOR and site.api in KERAS_CALLS - {"Model.fit"}:
        return "use the methods for one batch, which need no pipeline", _ON_BATCH_CODE
    if _built_object(site) == ITERATOR and framework == "keras":
        return "call `fit` once", "model.fit(dataset, epochs=epochs)   # not `fit` in a loop"
    if fitted := fit_line(view, site.line, keep_iterator):
        return "keep one iterator", fitted
    if _built_object(site) == ITERATOR and framework == "tensorflow":
        return (
            "keep one iterator",
            "for batch in dataset.repeat(): ...   # not next(iter(dataset)) every step",
        )
    if _built_object(site) == ITERATOR:
        loader = "loader = DataLoader(..., num_workers=4, persistent_workers=True)   # workers survive an epoch"
        return (
            "start workers once and keep the iterator",
            f"{loader}\nfor batch in loader: ...   # not next(iter(loader)) every step",
        )
    if fitted := fit_build_once(view, site.line):
        return "build it once, before the loop", fitted
    line = source_text(site.line, f"{_built_object(site).lower()} = {site.api}(...)")
    return (
        "build it once, before the loop",
        f"{line}   # before the loop\nfor step in range(steps): ...   # uses it",
    )


_ON_BATCH_CODE = (
    "model.train_on_batch(x, y)   # instead of `fit` in a loop; or call `fit` once for all rows\n"
    "outputs = model.predict_on_batch(x)   # instead of `predict` in a loop"
)


def _built_object(site: CallSite) -> str:
    """Return the name of the object that a call site builds, such as "Dataset"."""
    return str(next((name for name in site.values("what") if name), "object"))
