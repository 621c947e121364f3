"""A data loader with bad settings: workers, pinning, prefetch or shuffle buffer."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, gain_by_overlap
from forebay.doctor.analyse.framework import feed_framework
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import page_lock_copies, prefetch_input, prefetch_with_feed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_bound import MODERATE, OVERLAP_BASIS
from forebay.doctor.rules.input_producers import count_cores, find_slow_stage, gain_by_workers
from forebay.doctor.rules.pageable_upload import PINNING_BASIS, gain_by_pinning, is_pageable
from forebay.doctor.rules.precedence import sites_for
from forebay.doctor.rules.wording import feed_code, location, nbytes_per_call

__all__ = ["examine", "recognises"]

MOST_OF_MEMORY = 0.25  # share that a shuffle buffer may take
_PREFETCH = "dataset = dataset.prefetch(tf.data.AUTOTUNE)   # as the last call"


def recognises(view: CaptureView, site: CallSite) -> bool:
    if site.kind is EventKind.UPLOAD:
        return site.in_loop and is_pageable(site) and (_is_non_blocking(site) or _loads_unpinned(view))
    waits = cost_of(view, site.events) >= MODERATE * view.step_seconds > 0
    return waits and (_has_no_workers(view, site) or _has_no_prefetch(site))


def examine(view: CaptureView) -> Iterator[Finding]:
    for site in sites_for(view, "loader", EventKind.INPUT):
        yield _without_prefetch(view, site) if _has_no_prefetch(site) else _without_workers(view, site)
    for site in sites_for(view, "loader", EventKind.UPLOAD):
        yield _without_pinning(view, site)
    yield from _shuffles_too_much(view)


def _has_no_workers(view: CaptureView, site: CallSite) -> bool:
    """Whether the loop itself makes rows in Python, which a worker could do."""
    known = [workers for workers in site.values("workers") if workers is not None]
    return bool(known) and not any(known) and find_slow_stage(view, site).is_python


def _has_no_prefetch(site: CallSite) -> bool:
    known = [prefetch_with_feed for prefetch_with_feed in site.values("prefetch") if prefetch_with_feed is not None]
    return "tf.data" in site.values("loader") and bool(known) and not any(known)


def _is_non_blocking(site: CallSite) -> bool:
    return any(site.values("non_blocking"))


def _loads_unpinned(view: CaptureView) -> bool:
    loads = [
        pinned
        for site in view.sites_of(EventKind.INPUT)
        if site.api == "DataLoader"
        for pinned in site.values("pinned")
    ]
    return bool(loads) and not any(loads)


def _without_workers(view: CaptureView, site: CallSite) -> Finding:
    wait, stage = cost_of(view, site.events), find_slow_stage(view, site)
    made_at = location(view, stage.line or site.line, site.api)
    low, high = gain_by_workers(view, site, wait)
    basis = (
        f"batch making is divided among {count_cores(view)} cores and overlaps "
        "the rest of the step; no gain if the cores are busy"
    )
    code = f"loader = DataLoader(..., num_workers={count_cores(view)}, persistent_workers=True)"
    feed, overlap = feed_code(view, "torch"), prefetch_input(view, site, wait, in_worker_processes=False)
    return Finding(
        rule="loader",
        title=f"{site.api} has no workers, so the loop itself makes the batches",
        line=_made_at(view, site),
        seconds=wait,
        cures=(
            Cure("use workers", code, low, high, basis, prefetch_input(view, site, wait / count_cores(view))),
            Cure(
                "if the data is in arrays, use a feed",
                feed,
                *gain_by_overlap(view, wait),
                OVERLAP_BASIS,
                overlap,
            ),
        ),
        evidence=(f"The stage {stage.name!r} takes {format_seconds(stage.seconds)} per step at {made_at}.",),
    )


def _without_prefetch(view: CaptureView, site: CallSite) -> Finding:
    wait = cost_of(view, site.events)
    low, high = gain_by_overlap(view, wait)
    overlap = prefetch_input(view, site, wait, in_worker_processes=False)
    return Finding(
        rule="loader",
        title=f"{site.api} makes each batch only when the loop asks for it, without prefetch",
        line=_made_at(view, site),
        seconds=wait,
        cures=(
            Cure("prefetch", _PREFETCH, low, high, OVERLAP_BASIS, overlap),
            Cure(
                "let a feed prefetch batches",
                feed_code(view, feed_framework(view, site.api)),
                low,
                high,
                OVERLAP_BASIS,
                overlap,
            ),
        ),
        evidence=(f"The loop waited for {len(site.events)} batches in {site.steps} steps.",),
    )


def _without_pinning(view: CaptureView, site: CallSite) -> Finding:
    cost, amount = cost_of(view, site.events), format_nbytes(nbytes_per_call(site))
    low, high = gain_by_pinning(site, cost)
    still_waits = f"{site.api}(non_blocking=True) still waits, because its {amount} are in pageable memory"
    pageable = f"{site.api} uploads batches of {amount} that DataLoader left in pageable memory"
    code = "loader = DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)"
    return Finding(
        rule="loader",
        title=still_waits if _is_non_blocking(site) else pageable,
        line=site.line,
        seconds=cost,
        cures=(
            Cure("let the loader page-lock its batches", code, low, high, PINNING_BASIS, page_lock_copies(view, site)),
            Cure(
                "use a feed, which prefetches them",
                feed_code(view, "torch"),
                low,
                high,
                PINNING_BASIS,
                prefetch_with_feed(view, site),
            ),
        ),
        evidence=(
            f"The upload runs at {site.nbytes / cost / 1e9:.1f} GB/s while Python waits."
            if cost
            else "The time of the upload was not measured.",
        ),
    )


def _shuffles_too_much(view: CaptureView) -> Iterator[Finding]:
    """Warn once per line about a large shuffle buffer, which costs memory, not time."""
    memory, row = view.capture.machine.get("memory_nbytes") or 0, _row_nbytes(view)
    built = {(event.api, event.line): event for event in view.events_of(EventKind.BUILD) if view.steps}
    for event in built.values():
        rows = (event.detail or {}).get("shuffle_rows") or 0
        if rows * row > MOST_OF_MEMORY * memory > 0:
            title = f"{event.api} uses a shuffle buffer of {rows} rows ({format_nbytes(rows * row)} of memory)"
            feed = feed_code(view, feed_framework(view, event.api))
            cure = Cure(
                "shuffle indices instead of rows: an exact shuffle without a buffer",
                feed,
                0.0,
                0.0,
                "this cure saves memory, not time",
            )
            memory_use = f"A row takes {format_nbytes(row)}, and the machine has {format_nbytes(memory)}."
            yield Finding("loader", title, view.line(event.line), 0.0, (cure,), (memory_use,))


def _row_nbytes(view: CaptureView) -> float:
    """Return the size of the largest row of any batch with a known number of rows."""
    events = [event for event in view.events_of(EventKind.INPUT) if (event.detail or {}).get("batch_rows")]
    return max((event.nbytes / (event.detail or {})["batch_rows"] for event in events), default=0.0)


def _made_at(view: CaptureView, site: CallSite) -> Line | None:
    """Return the only line that builds the loader, else the line that waits for it."""
    names = {site.api, *site.values("loader")} | ({"Dataset"} if "tf.data" in site.values("loader") else set())
    built = {event.line for event in view.events_of(EventKind.BUILD) if (event.detail or {}).get("what") in names}
    return (view.line(built.pop()) if len(built) == 1 else None) or site.line
