"""A data loader set up so that it must wait, must copy twice or must burst: workers, pinning, prefetch, shuffling."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, won_by_overlap
from forebay.doctor.analyse.framework import feeds
from forebay.doctor.model.events import Kind, Line
from forebay.doctor.model.formatting import seconds
from forebay.doctor.predict.cure_changes import ahead, page_locked, prefetched
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_bound import MODERATE, OVERLAP
from forebay.doctor.rules.input_producers import cores_of, stage_of, won_by_workers
from forebay.doctor.rules.pageable_upload import PINNING, is_pageable, won_by_pinning
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import each_nbytes, feed_code, place

__all__ = ["examine", "recognises"]

MOST_OF_MEMORY = 0.25  # that a shuffle buffer may take
_PREFETCH = "dataset = dataset.prefetch(tf.data.AUTOTUNE)   # the last link"


def recognises(case: Case, site: Site) -> bool:
    if site.kind is Kind.UPLOAD:
        return site.in_loop and is_pageable(site) and (_asked_to_fly(site) or _loads_unpinned(case))
    waits = cost_of(case, site.events) >= MODERATE * case.step_seconds > 0
    return waits and (_has_no_workers(case, site) or _has_no_prefetch(site))


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "loader", Kind.INPUT):
        yield _without_prefetch(case, site) if _has_no_prefetch(site) else _without_workers(case, site)
    for site in charged(case, "loader", Kind.UPLOAD):
        yield _without_pinning(case, site)
    yield from _shuffles_too_much(case)


def _has_no_workers(case: Case, site: Site) -> bool:
    """Rows are made by the loop itself, in Python that a worker could run."""
    known = [workers for workers in site.values("workers") if workers is not None]
    return bool(known) and not any(known) and stage_of(case, site).is_python


def _has_no_prefetch(site: Site) -> bool:
    known = [ahead for ahead in site.values("prefetch") if ahead is not None]
    return "tf.data" in site.values("loader") and bool(known) and not any(known)


def _asked_to_fly(site: Site) -> bool:
    return any(site.values("non_blocking"))


def _loads_unpinned(case: Case) -> bool:
    loads = [pinned for site in case.of(Kind.INPUT) if site.api == "DataLoader" for pinned in site.values("pinned")]
    return bool(loads) and not any(loads)


def _without_workers(case: Case, site: Site) -> Finding:
    wait, stage = cost_of(case, site.events), stage_of(case, site)
    made_at = place(case, stage.line or site.line, site.api)
    low, high = won_by_workers(case, site, wait)
    how = f"the making shared by {cores_of(case)} cores, beside the rest of the step; nothing where they are busy"
    code = f"loader = DataLoader(..., num_workers={cores_of(case)}, persistent_workers=True)"
    feed, beside = feed_code(case, "torch"), prefetched(case, site, wait, by_processes=False)
    return Finding(
        rule="loader",
        title=f"{site.api} has no workers, so the loop makes its own batches",
        line=_made_at(case, site),
        seconds=wait,
        cures=(
            Cure("give it workers", code, low, high, how, prefetched(case, site, wait / cores_of(case))),
            Cure(
                "if the data is in arrays, a feed, which needs none", feed, *won_by_overlap(case, wait), OVERLAP, beside
            ),
        ),
        evidence=(f"{stage.name}: {seconds(stage.seconds)} a step, at {made_at}",),
    )


def _without_prefetch(case: Case, site: Site) -> Finding:
    wait = cost_of(case, site.events)
    low, high = won_by_overlap(case, wait)
    beside = prefetched(case, site, wait, by_processes=False)
    return Finding(
        rule="loader",
        title=f"{site.api} makes a batch only when it is asked for, without prefetch",
        line=_made_at(case, site),
        seconds=wait,
        cures=(
            Cure("prefetch", _PREFETCH, low, high, OVERLAP, beside),
            Cure("let a feed make them ahead", feed_code(case, feeds(case, site.api)), low, high, OVERLAP, beside),
        ),
        evidence=(f"{len(site.events)} batches in {site.steps} steps, each waited for",),
    )


def _without_pinning(case: Case, site: Site) -> Finding:
    cost, amount = cost_of(case, site.events), format_nbytes(each_nbytes(site))
    low, high = won_by_pinning(site, cost)
    flies = f"{site.api}(non_blocking=True) waits all the same: its {amount} are in pageable memory"
    waits = f"{site.api} uploads batches of {amount} that DataLoader left in pageable memory"
    code = "loader = DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)"
    return Finding(
        rule="loader",
        title=flies if _asked_to_fly(site) else waits,
        line=site.line,
        seconds=cost,
        cures=(
            Cure("let the loader lock its batches", code, low, high, PINNING, page_locked(case, site)),
            Cure("a feed, which sends them ahead", feed_code(case, "torch"), low, high, PINNING, ahead(case, site)),
        ),
        evidence=(f"{site.nbytes / cost / 1e9:.1f} GB/s while Python waits" if cost else "no time was measured",),
    )


def _shuffles_too_much(case: Case) -> Iterator[Finding]:
    """A warning, once a line: it costs memory, not seconds."""
    memory, row = case.capture.machine.get("memory_nbytes") or 0, _row_nbytes(case)
    built = {(event.api, event.line): event for event in case.events(Kind.BUILD) if case.steps}
    for event in built.values():
        rows = (event.detail or {}).get("shuffle_rows") or 0
        if rows * row > MOST_OF_MEMORY * memory > 0:
            title = f"{event.api} asks for a shuffle buffer of {rows} rows, {format_nbytes(rows * row)} of memory"
            feed = feed_code(case, feeds(case, event.api))
            cure = Cure("shuffle indices, not rows: exact, and no buffer", feed, 0.0, 0.0, "memory, not time")
            told = f"a row takes {format_nbytes(row)}, the machine has {format_nbytes(memory)}"
            yield Finding("loader", title, case.line(event.line), 0.0, (cure,), (told,))


def _row_nbytes(case: Case) -> float:
    """The largest row of any batch whose rows were counted."""
    events = [event for event in case.events(Kind.INPUT) if (event.detail or {}).get("batch_rows")]
    return max((event.nbytes / (event.detail or {})["batch_rows"] for event in events), default=0.0)


def _made_at(case: Case, site: Site) -> Line | None:
    """Where the loader is set up, if that is known beyond doubt; else where the loop waits for it."""
    names = {site.api, *site.values("loader")} | ({"Dataset"} if "tf.data" in site.values("loader") else set())
    built = {event.line for event in case.events(Kind.BUILD) if (event.detail or {}).get("what") in names}
    return (case.line(built.pop()) if len(built) == 1 else None) or site.line
