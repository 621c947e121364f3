"""The rule for large uploads from pageable memory.

The CPU must first copy pageable memory to a page-locked buffer, while Python waits.
"""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feed_framework, is_device, is_on_device
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.upload_cure_changes import page_lock_copies, prefetch_with_feed
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line, has_excerpt
from forebay.doctor.rules.pin_edits import pin_array
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import feed_code, frequency, keep_on_device_cure, keep_on_device_fits, nbytes_per_call

__all__ = ["PINNING_BASIS", "examine", "is_pageable", "recognises"]

MIN_NBYTES = 1 << 20  # bytes per call; the rule does not report smaller uploads
PAGEABLE_BYTES_PER_SECOND = 8e9  # the largest speed of uploads from pageable memory, with 16 PCIe lanes
PINNING_BASIS = "the cure removes the CPU copy, and the upload may overlap computation"


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site in the loop uploads much data from pageable memory."""
    return site.in_loop and (is_pageable(site) or _moves_batch(view, site))


def is_pageable(site: CallSite) -> bool:
    """Whether the calls of a call site upload much data from pageable memory."""
    return is_on_device(site) and False in site.values("pinned") and nbytes_per_call(site) >= MIN_NBYTES


def _moves_batch(view: CaptureView, site: CallSite) -> bool:
    """Whether an operation moves its tf.data batch, which is in pageable memory, to the device."""
    if site.kind is not EventKind.MOVE or nbytes_per_call(site) < MIN_NBYTES:
        return False
    is_upload = any(map(is_device, site.values("target"))) and not any(map(is_device, site.values("source")))
    return is_upload and any(
        nbytes_per_call(batch) >= nbytes_per_call(site) for batch in view.sites_of(EventKind.INPUT) if batch.in_loop
    )


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site of this rule."""
    for site in view.sites_for("pageable_upload"):
        cost = cost_of(view, site.events)
        gigabytes_per_second = site.nbytes / cost / 1e9 if cost else 0.0
        amount = format_nbytes(nbytes_per_call(site))
        yield Finding(
            rule="pageable_upload",
            title=f"{next(iter(site.values('op')), site.api)} uploads {amount} from pageable memory {frequency(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(view, site),
            evidence=(
                f"The upload runs at {gigabytes_per_second:.1f} GB/s while Python waits. `forebay "
                "probe` measures the speed of page-locked memory.",
            ),
        )


def _cures(view: CaptureView, site: CallSite) -> tuple[Cure, ...]:
    framework = feed_framework(view, site.api)
    title, code = "let a feed page-lock the memory and prefetch batches", feed_code(view, framework, site)
    feed = Cure(title, code, PINNING_BASIS, prefetch_with_feed(view, site))
    resident = [keep_on_device_cure(view, site)] if view.device is not None and keep_on_device_fits(view, site) else []
    if framework != "torch":
        return feed, *resident
    code = "array = array.pin_memory()   # once, before the loop; its slices are page-locked too\n"
    code += "x = array[start:end].to(device, non_blocking=True)"
    fitted = fit_line(view, site.line, pin_array)
    if not fitted and has_excerpt(view, site.line):
        return feed, *resident  # the loop selects rows, which are a new, pageable tensor
    code = fitted or code
    basis = f"{PINNING_BASIS}; batches that the script assembles need a page-locked buffer"
    locked = Cure("page-lock the data once", code, basis, page_lock_copies(view, site))
    return locked, feed, *resident
