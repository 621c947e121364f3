"""Something made to live long that the loop makes anew: a pipeline, a session, a loader, a compiled function."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Event, Kind
from forebay.doctor.model.formatting import seconds
from forebay.doctor.predict.cure_changes import removed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import calls, most_of_one, told

__all__ = ["examine", "recognises"]

FEWEST = 3  # in steady steps: one for each epoch is nobody's fault
ITERATOR = "iterator"  # of a loader, which starts its workers
PIPELINES = frozenset({"Dataset", "DataLoader", ITERATOR})
MODEL = "Model"  # of Keras: to compile it again undoes what `fit` has compiled
FUNCTIONS = frozenset({"function", "jit", MODEL})
# What is done anew with the thing itself: a new pipeline starts anew, a new function is compiled anew, a new session
# prepares its graph in its first run.
_FOLLOWS = {Kind.INPUT: PIPELINES, Kind.COMPILE: FUNCTIONS, Kind.RUN: frozenset({"Session"})}


def recognises(case: Case, site: Site) -> bool:
    if site.kind is Kind.BUILD:
        return _is_again(site)
    if site.kind is Kind.RUN and not any(site.values("first")):
        return False
    kinds = _FOLLOWS.get(site.kind, frozenset())
    builds = [build for build in case.of(Kind.BUILD) if _is_again(build) and _what(build) in kinds]
    return sum(len(build.events) for build in builds) >= len(site.events) / 2


def examine(case: Case) -> Iterator[Finding]:
    """What follows from making a thing is charged with it, once: to the longest of its kind."""
    builds = sorted(charged(case, "rebuilt", Kind.BUILD), key=lambda build: _what(build) != MODEL)
    follows = {kind: [e for site in charged(case, "rebuilt", kind) for e in site.events] for kind in _FOLLOWS}
    loaders = [build for build in builds if _what(build) in PIPELINES - {ITERATOR}]
    for build in builds:
        if _what(build) == ITERATOR and loaders:
            continue  # a new loader needs a new iterator
        after = next((follows.pop(kind) for kind in [*follows] if _what(build) in _FOLLOWS[kind]), [])
        if build in loaders[:1]:
            after += [event for other in builds if _what(other) == ITERATOR for event in other.events]
        yield _finding(case, build, after)


def _finding(case: Case, site: Site, after: list[Event]) -> Finding:
    """What follows from it may stay in part, as the first batch of a pipeline that lives also takes its time."""
    building, cost = cost_of(case, site.events), cost_of(case, [*site.events, *after])
    times = f"{calls(site) * site.steps:.0f} times in {site.steps} steps"
    how = "the making, and at most all that is done anew for it, as measured"
    low = cost if _what(site) in FUNCTIONS else min(building, cost)
    return Finding(
        rule="rebuilt",
        title=f"{site.api} makes a new {_what(site)} {times}",
        line=site.line,
        seconds=cost,
        cures=(Cure(*_cure(case, site), low, cost, how, removed(case, site)),),
        evidence=(f"{seconds(building)} a step to make, {seconds(max(0.0, cost - building))} that follow from it",),
    )


def _is_again(build: Site) -> bool:
    """Not where few calls of `fit` made them all, as each does for every epoch and every validation."""
    by_epochs = 0 < len({*build.values("fit")}) < FEWEST
    return most_of_one(build)[1] >= FEWEST and not by_epochs


def _cure(case: Case, site: Site) -> tuple[str, str]:
    framework = framework_of(case, site.api)
    if _what(site) == ITERATOR and site.api in _ON_A_BATCH:
        return "call the model itself, which needs no pipeline", _ON_A_BATCH[site.api]
    if _what(site) == ITERATOR and framework == "keras":
        return "one `fit` for all of it", "model.fit(dataset, epochs=epochs)   # not a `fit` for every part"
    if _what(site) == ITERATOR and framework == "tensorflow":
        return (
            "iterate, and never begin anew",
            "for batch in dataset.repeat(): ...   # not next(iter(dataset)) every step",
        )
    if _what(site) == ITERATOR:
        keep = "loader = DataLoader(..., num_workers=4, persistent_workers=True)   # workers outlive an epoch"
        return (
            "start workers once, and iterate",
            f"{keep}\nfor batch in loader: ...   # not next(iter(loader)) every step",
        )
    line = told(site.line, f"{_what(site).lower()} = {site.api}(...)")
    return (
        "make it once, in front of the loop",
        f"{line}   # in front of the loop\nfor step in range(steps): ...   # uses it",
    )


_ON_A_BATCH = {
    "Model.predict": "outputs = model(batch, training=False)   # or one `predict` of all rows together",
    "Model.evaluate": "model.test_on_batch(x, y)   # or one `evaluate` of all rows together",
}


def _what(site: Site) -> str:
    return str(next((what for what in site.values("what") if what), "thing"))
