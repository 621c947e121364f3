"""Large uploads out of ordinary memory: the GPU cannot read it, so the CPU copies every byte first and Python waits."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import feeds, is_device, on_device
from forebay.doctor.model.events import Kind
from forebay.doctor.predict.cure_changes import ahead, page_locked
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import each_nbytes, feed_code, keep_there, often

__all__ = ["PINNING", "examine", "is_pageable", "recognises", "won_by_pinning"]

SMALLEST_NBYTES = 1 << 20
# Sixteen lanes of any GPU in use: pageable memory goes no faster than the first, page-locked no slower than the second.
PAGEABLE_BYTES_PER_SECOND, PINNED_BYTES_PER_SECOND = 8e9, 12e9
PINNING = "the CPU's copy falls away, and the rest may cross while the device computes"


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop and (is_pageable(site) or _pulls_batch(case, site))


def is_pageable(site: Site) -> bool:
    """Whether much is known to cross from memory that is not page-locked."""
    return on_device(site) and False in site.values("pinned") and each_nbytes(site) >= SMALLEST_NBYTES


def _pulls_batch(case: Case, site: Site) -> bool:
    """Batches of tf.data wait in ordinary memory: the first operation on the device pulls them over."""
    if site.kind is not Kind.MOVE or each_nbytes(site) < SMALLEST_NBYTES:
        return False
    crosses = any(map(is_device, site.values("target"))) and not any(map(is_device, site.values("source")))
    return crosses and any(each_nbytes(batch) >= each_nbytes(site) for batch in case.of(Kind.INPUT) if batch.in_loop)


def won_by_pinning(site: Site, cost: float) -> tuple[float, float]:
    """At least the difference between the two kinds of memory on a slow link; at most all, where the copy overlaps."""
    difference = site.nbytes * (1 / PAGEABLE_BYTES_PER_SECOND - 1 / PINNED_BYTES_PER_SECOND)
    return min(cost, difference), cost


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "pageable_upload"):
        cost = cost_of(case, site.events)
        speed = site.nbytes / cost / 1e9 if cost else 0.0
        amount = format_nbytes(each_nbytes(site))
        yield Finding(
            rule="pageable_upload",
            title=f"{next(iter(site.values('op')), site.api)} uploads {amount} from pageable memory {often(site)}",
            line=site.line,
            seconds=cost,
            cures=_cures(case, site, cost),
            evidence=(f"{speed:.1f} GB/s while Python waits; `forebay probe` says what page-locked memory does here",),
        )


def _cures(case: Case, site: Site, cost: float) -> tuple[Cure, ...]:
    framework = feeds(case, site.api)
    low, high = won_by_pinning(site, cost)
    title, code = "let a feed lock the memory and send batches ahead", feed_code(case, framework)
    feed = Cure(title, code, low, high, PINNING, ahead(case, site))
    stays = [keep_there(case, site, cost)] if case.device is not None else []
    if framework != "torch":
        return feed, *stays
    code = "array = array.pin_memory()   # once, in front of the loop: what is cut out of it is locked too\n"
    code += "x = array[start:end].to(device, non_blocking=True)"
    how = f"{PINNING}; batches that are put together anew need a locked place to be put into"
    locked = Cure("lock the memory of the data once", code, 0.0, high, how, page_locked(case, site))
    return locked, feed, *stays
