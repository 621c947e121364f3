"""The loop waits for its next batch; the stage that takes the time is named. XProf's limits: 5 % moderate, 20 % severe.

TraceML's, 10 % and 20 %, lie inside them.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_overlap
from forebay.doctor.analyse.framework import feeds
from forebay.doctor.model.events import FEED
from forebay.doctor.model.formatting import counted, percent, seconds
from forebay.doctor.predict.cure_changes import prefetched
from forebay.doctor.rules.feed_cures import feed_cures
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_producers import (
    SERIAL,
    Stage,
    cores_of,
    producers_of,
    stage_of,
    won_by_workers,
    workers_of,
)
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import batch_rows, feed_code, place

__all__ = ["MODERATE", "OVERLAP", "examine", "recognises"]

MODERATE, SEVERE = 0.05, 0.2  # of a step
OVERLAP = "the wait beside the rest of the step, which it can hide behind at most"

_STAGES = {
    "row": "rows are made one by one in Python",
    "collate": "rows are put together into batches in Python",
    "map": "a mapped Python function takes the time",
    "generator": "a Python generator takes the time",
    SERIAL: "rows are mapped one at a time",
    "workers": "its workers cannot keep up",
    "loader": "the loader itself takes the time",
}


def recognises(case: Case, site: Site) -> bool:
    return cost_of(case, site.events) >= MODERATE * case.step_seconds > 0


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "input_bound"):
        wait, stage = cost_of(case, site.events), stage_of(case, site)
        why = _STAGES.get(stage.name, f"{stage.name} takes the time")
        yield Finding(
            rule="input_bound",
            title=f"The loop waits for {site.api} {percent(wait / case.step_seconds)} of the time: {why}",
            line=stage.line or site.line,
            seconds=wait,
            cures=(*_cures(case, site, wait, stage),),
            evidence=(*_evidence(case, site, wait, stage),),
        )


def _evidence(case: Case, site: Site, wait: float, stage: Stage) -> Iterator[str]:
    share = wait / case.step_seconds
    yield f"{'severely' if share >= SEVERE else 'moderately'} input-bound: {percent(share)} of a step"
    if stage.is_python:
        waits = place(case, site.line, site.api)
        yield f"{stage.name}: {seconds(stage.seconds)} of Python a step; the loop waits at {waits}"
    if stage.beside:
        yield "it runs on another thread of this process: one thread at a time runs Python (the GIL)"
    if workers_of(site):
        yield f"{counted(workers_of(site), 'worker')} on {counted(cores_of(case), 'core')}"


def _cures(case: Case, site: Site, wait: float, stage: Stage) -> Iterator[Cure]:
    framework = feeds(case, site.api)
    if site.api == FEED:
        yield from feed_cures(case, site, wait, stage, framework)
    elif site.values("loader")[:1] == ["arrays"]:
        yield _overlap(case, site, wait, "let a feed make batches of the arrays ahead", feed_code(case, framework))
    elif stage.name == "map" and framework in ("tensorflow", "keras"):
        yield _workers(case, site, wait, "map in parallel, ahead of the loop", _MAP)
        yield _workers(case, site, wait, "map whole batches of arrays in processes", _processes(site, framework))
    elif stage.name == SERIAL:
        yield _workers(case, site, wait, "map in parallel, ahead of the loop", _MAP)
        yield _workers(case, site, wait, "batch first, and map whole batches in parallel", _MAP_BATCHES)
    elif stage.name == "generator":
        yield _whole_batches(case, site, wait, framework)
        yield _row_by_row(site, wait, framework)
    elif stage.is_python:
        yield _workers(case, site, wait, "make rows in processes, whole batches at a time", _processes(site, framework))
    else:
        yield from _loader_cures(case, site, wait, framework)


def _loader_cures(case: Case, site: Site, wait: float, framework: str) -> Iterator[Cure]:
    """One more thread that waits for a loader wins nothing where somebody works ahead already."""
    if framework == "torch" and site.api == "DataLoader" and workers_of(site) < cores_of(case):
        code = f"loader = DataLoader(..., num_workers={cores_of(case)}, persistent_workers=True)"
        yield _workers(case, site, wait, "a worker for every core", code)
    title, code = "if the data is in arrays, leave the loader out", feed_code(case, framework)
    if producers_of(site):
        yield Cure(title, code, 0.0, wait, "at most all of the wait: how fast it is read was not measured")
        return
    batches = f'import forebay as fb\nfeed = fb.from_batches(loader).feed("{framework}")   # fetched ahead, in a thread'
    yield _overlap(case, site, wait, "fetch batches while the step runs", batches)
    yield _overlap(case, site, wait, title, code)


def _overlap(case: Case, site: Site, wait: float, title: str, code: str) -> Cure:
    low, high = won_by_overlap(case, wait)
    return Cure(title, code, low, high, OVERLAP, prefetched(case, site, wait, by_processes=False))


def _workers(case: Case, site: Site, wait: float, title: str, code: str) -> Cure:
    low, high = won_by_workers(case, site, wait)
    how = f"the making shared by {cores_of(case)} cores, beside the rest of the step; nothing where they are busy"
    return Cure(title, code, low, high, how, prefetched(case, site, wait / cores_of(case)))


def _processes(site: Site, framework: str) -> str:
    chain = f'fb.from_source(dataset).shuffle(seed=0).map(prepare, where="process").batch({batch_rows(site)})'
    return f'import forebay as fb\nfeed = {chain}.feed("{framework}")'


def _whole_batches(case: Case, site: Site, wait: float, framework: str) -> Cure:
    low, _ = won_by_workers(case, site, wait)
    rows = batch_rows(site)
    made = f"def batches(): ...   # yields whole batches: one call for {rows} rows, not {rows} calls"
    code = f'import forebay as fb\n{made}\nfeed = fb.from_batches(batches).feed("{framework}")   # made ahead'
    how = "at most all of the wait, where what is done for a row is done for many at once; nothing where it is slow"
    return Cure("make a whole batch at a time, ahead of the loop", code, low, wait, how)


def _row_by_row(site: Site, wait: float, framework: str) -> Cure:
    code = f'import forebay as fb\nfeed = fb.from_generator(make).batch({batch_rows(site)}).feed("{framework}")'
    how = "at most all of the wait: what the loader adds to every row goes, the generator's own time stays"
    return Cure("let a feed call the same generator", code, 0.0, wait, how)


_MAP = "dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)"
_MAP_BATCHES = _MAP.replace("dataset.map", "dataset.batch(256).map")
