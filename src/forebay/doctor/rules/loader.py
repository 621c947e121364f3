"""The rule for loaders with bad settings: workers, page-locked memory, prefetch or shuffle buffer."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_seconds
from forebay.doctor.predict.cure_changes import limit_to_cores, map_whole_batches, prefetch_input
from forebay.doctor.predict.upload_cure_changes import page_lock_copies, prefetch_with_feed
from forebay.doctor.rules.edits import join_code
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_array_feed, fit_line, fit_loader, has_excerpt
from forebay.doctor.rules.input_bound import (
    MODERATE,
    OVERLAP_BASIS,
    index_cure,
    overlap_cures,
    stored_rows_cures,
    worker_processes_cure,
)
from forebay.doctor.rules.input_edits import copy_without_wait
from forebay.doctor.rules.input_producers import (
    find_slow_stage,
    loader_line,
    makes_batches_quickly,
    stream_kinds,
    worker_reason,
    workers_pay,
)
from forebay.doctor.rules.pageable_upload import PINNING_BASIS, is_pageable
from forebay.doctor.rules.pipeline_edits import batch_before_map, prefetch_dataset
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import batch_rows, feed_code, location, nbytes_per_call

__all__ = ["examine", "recognises"]

BUFFER_SHARE = 0.25  # share of the host memory; the rule warns about shuffle buffers that take more
_WHOLE_STREAM = (
    "The dataset is a stream: each worker process would yield all of its rows. If its code divides the rows by "
    "torch.utils.data.get_worker_info(), worker processes can make the batches."
)
_PREFETCH_CODE = "dataset = dataset.prefetch(tf.data.AUTOTUNE)   # as the last call"


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a setting of the loader explains a slow upload, or a wait for input."""
    if site.kind is EventKind.UPLOAD:
        is_loaders_fault = _loads_unpinned(view) or (_is_non_blocking(site) and not _loads_pinned(view))
        return site.in_loop and is_pageable(site) and is_loaders_fault
    waits = cost_of(view, site.events) >= MODERATE * view.step_seconds > 0
    return waits and (_has_no_workers(view, site) or _has_no_prefetch(site))


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule, and one per large shuffle buffer."""
    for site in view.sites_for("loader", EventKind.INPUT):
        yield _prefetch_finding(view, site) if _has_no_prefetch(site) else _workers_finding(view, site)
    for site in view.sites_for("loader", EventKind.UPLOAD):
        yield _pinning_finding(view, site)
    yield from _shuffle_buffer_findings(view)


def _has_no_workers(view: CaptureView, site: CallSite) -> bool:
    """Whether a loader has no workers, and its slow stage is the user's Python code."""
    known = [workers for workers in site.values("workers") if workers is not None]
    return bool(known) and not any(known) and find_slow_stage(view, site).is_python


def _has_no_prefetch(site: CallSite) -> bool:
    """Whether a call site reads a tf.data pipeline without prefetch."""
    known = [prefetch for prefetch in site.values("prefetch") if prefetch is not None]
    return "tf.data" in site.values("loader") and bool(known) and not any(known)


def _is_non_blocking(site: CallSite) -> bool:
    return any(site.values("non_blocking"))


def _loads_unpinned(view: CaptureView) -> bool:
    """Whether the script uses DataLoaders, and all of them lack `pin_memory`."""
    settings = _pin_settings(view)
    return bool(settings) and not any(settings)


def _loads_pinned(view: CaptureView) -> bool:
    """Whether a DataLoader of the script has `pin_memory`.

    Its batches are then page-locked, so a pageable upload has other data.
    """
    return any(_pin_settings(view))


def _pin_settings(view: CaptureView) -> list[bool]:
    sites = (site for site in view.sites_of(EventKind.INPUT) if site.api == "DataLoader")
    return [bool(pinned) for site in sites for pinned in site.values("pinned")]


def _workers_finding(view: CaptureView, site: CallSite) -> Finding:
    """Build the finding for a DataLoader without workers."""
    wait, stage = cost_of(view, site.events), find_slow_stage(view, site)
    stage_location = location(view, stage.line or site.line, site.api)
    pays, reason = workers_pay(view, site, wait), "so the loop itself makes the batches"
    size = format_nbytes(nbytes_per_call(site))
    why_not = f"A batch has {size}. Getting it from a worker process may take as long as making it."
    is_quick = makes_batches_quickly(view, site, wait)
    if "whole" in stream_kinds(view, site):
        why_not = _WHOLE_STREAM
    elif not is_quick:
        why_not = "Worker processes may gain nothing, because this script or other programs keep the cores busy."
    framework, is_stream = feed_framework(view, site.api), bool(stream_kinds(view, site))
    feed = fit_array_feed(view, framework, site) or feed_code(view, framework, site)
    keeps_loader = is_stream or "from_batches(" in feed
    title = "prefetch batches during the step" if keeps_loader else "if the data is in arrays, use a feed"
    return Finding(
        rule="loader",
        title=f"{site.api} makes small batches row by row" if is_quick else f"{site.api} has no workers, {reason}",
        line=loader_line(view, site),
        seconds=wait,
        cures=(
            *stored_rows_cures(view, site, framework),
            *([worker_processes_cure(view, site, wait)] if pays else []),
            *([index_cure(view, site)] if not pays and not is_stream else []),
            *overlap_cures(view, site, wait, Cure(title, feed, "")),
        ),
        evidence=(
            f"The stage {stage.name!r} takes {format_seconds(stage.seconds)} per step at {stage_location}.",
            worker_reason(view, site, wait) if pays else why_not,
        ),
    )


def _prefetch_finding(view: CaptureView, site: CallSite) -> Finding:
    """Build the finding for a tf.data pipeline without prefetch."""
    wait = cost_of(view, site.events)
    overlap = limit_to_cores(view, prefetch_input(view, site, wait, in_worker_processes=False))
    return Finding(
        rule="loader",
        title=f"{site.api} makes each batch only when the loop asks for it, without prefetch",
        line=loader_line(view, site),
        seconds=wait,
        cures=(
            *_whole_batch_cures(view, site),
            Cure("prefetch", fit_line(view, site.line, prefetch_dataset) or _PREFETCH_CODE, OVERLAP_BASIS, overlap),
            Cure(
                "let a feed prefetch batches",
                feed_code(view, feed_framework(view, site.api), site),
                OVERLAP_BASIS,
                overlap,
            ),
        ),
        evidence=(f"The loop waited for {len(site.events)} batches in {site.steps} steps.",),
    )


def _whole_batch_cures(view: CaptureView, site: CallSite) -> Iterator[Cure]:
    """Yield the cure that maps whole batches, unless the mapped function seems to need rows."""
    rows = batch_rows(site)
    if not site.values("row_map") or rows in ("1", 1):
        return
    code = fit_line(view, site.line, batch_before_map)
    if not code and has_excerpt(view, site.line):
        return
    code = code or f"dataset = dataset.batch({rows}).map(prepare)   # `prepare` gets whole batches"
    basis = f"TensorFlow calls the mapped function once per batch, not once for each of its {rows} rows"
    yield Cure("batch first, then map whole batches", code, basis, map_whole_batches(view))


def _pinning_finding(view: CaptureView, site: CallSite) -> Finding:
    """Build the finding for uploads from pageable memory that the loader could page-lock."""
    cost, amount = cost_of(view, site.events), format_nbytes(nbytes_per_call(site))
    blocking_title = f"{site.api}(non_blocking=True) still waits, because its {amount} are in pageable memory"
    pageable_title = f"{site.api} uploads batches of {amount} that DataLoader left in pageable memory"
    code = _pinning_code(view, site) or "loader = DataLoader(..., pin_memory=True)\nx = x.to(device, non_blocking=True)"
    return Finding(
        rule="loader",
        title=blocking_title if _is_non_blocking(site) else pageable_title,
        line=site.line,
        seconds=cost,
        cures=(
            Cure("let the loader page-lock its batches", code, PINNING_BASIS, page_lock_copies(view, site)),
            Cure(
                "use a feed, which page-locks and prefetches batches",
                feed_code(view, "torch", site),
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


def _pinning_code(view: CaptureView, site: CallSite) -> str:
    """Return edits, as text, that page-lock the loader's batches and copy without a wait."""
    loader = next((other for other in view.sites_of(EventKind.INPUT) if other.api == "DataLoader"), None)
    line = loader_line(view, loader) if loader is not None else None
    pinned = fit_loader(view, line, pin_memory="True")
    copies = fit_line(view, site.line, copy_without_wait)
    return join_code(pinned, copies)


def _shuffle_buffer_findings(view: CaptureView) -> Iterator[Finding]:
    """Yield a warning for each line that makes a large shuffle buffer.

    The finding costs no time, because a shuffle buffer only takes memory.
    """
    memory_nbytes, row_nbytes = view.capture.machine.get("memory_nbytes") or 0, _row_nbytes(view)
    builds = {(event.api, event.line): event for event in view.events_of(EventKind.BUILD) if view.steps}
    for event in builds.values():
        rows = (event.detail or {}).get("shuffle_rows") or 0
        if rows * row_nbytes > BUFFER_SHARE * memory_nbytes > 0:
            title = f"{event.api} uses a shuffle buffer of {rows} rows ({format_nbytes(rows * row_nbytes)} of memory)"
            feed = feed_code(view, feed_framework(view, event.api))
            cure = Cure(
                "shuffle indices instead of rows: an exact shuffle without a buffer",
                feed,
                "this cure saves memory, not time",
            )
            evidence = f"A row takes {format_nbytes(row_nbytes)}, and the machine has {format_nbytes(memory_nbytes)}."
            yield Finding("loader", title, view.line(event.line), 0.0, (cure,), (evidence,))


def _row_nbytes(view: CaptureView) -> float:
    """Return the bytes of the largest row, from batches with a known number of rows."""
    events = [event for event in view.events_of(EventKind.INPUT) if (event.detail or {}).get("batch_rows")]
    return max((event.nbytes / (event.detail or {})["batch_rows"] for event in events), default=0.0)
