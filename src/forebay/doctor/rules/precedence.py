"""Assignment of call sites to rules: the most specific rule that recognises a site gets it.

A rule in `PRECEDENCE` defines `recognises(view, site)` and `examine(view)`; `sites_for(view, rule)` returns its sites.
Some time belongs to no event. If the hooks counted operations, `tiny_ops`, `eager` or `threads` explain the time of
Python and of launches; otherwise `small_batch` does. Rules that read `view.device` explain kernels and copies that no
call waited for. `constants` and `out_of_memory` only warn.
"""

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules.registry import load_site_rule

__all__ = ["PRECEDENCE", "sites_for"]

PRECEDENCE: dict[EventKind, tuple[str, ...]] = {
    EventKind.UPLOAD: (
        "repeated_upload",  # no upload is needed
        "fits_on_device",  # no second upload is needed
        "many_small_copies",  # one upload is enough
        "wide_dtype",  # half the bytes are enough
        "loader",  # a setting of the loader makes it fast
        "pageable_upload",  # page-locked memory makes it fast
        "conversion_in_loop",  # it can be prefetched
    ),
    EventKind.DOWNLOAD: ("host_check", "read_back"),
    EventKind.SYNC: ("sync",),
    EventKind.INPUT: ("rebuilt", "loader", "threads", "input_bound"),
    EventKind.BUILD: ("rebuilt",),
    EventKind.COMPILE: ("rebuilt", "retracing"),
    EventKind.RUN: ("rebuilt",),
    EventKind.MOVE: ("pageable_upload", "placement"),
    EventKind.OPS: ("threads", "tiny_ops", "eager"),
}

_sites_by_rule: WeakKeyDictionary[CaptureView, dict[str, list[CallSite]]] = WeakKeyDictionary()


def sites_for(view: CaptureView, rule: str, *kinds: EventKind) -> list[CallSite]:
    """Return the sites of a rule, longest first. Calls of one kind on one line are one site."""
    if view not in _sites_by_rule:
        _sites_by_rule[view] = _assign_sites(view)
    sites = [site for site in _sites_by_rule[view].get(rule, []) if not kinds or site.kind in kinds]
    return sorted(_merge_by_line(sites), key=lambda site: -site.seconds)


def _assign_sites(view: CaptureView) -> dict[str, list[CallSite]]:
    found: dict[str, list[CallSite]] = {}
    for site in _loop_sites(view):
        for rule in PRECEDENCE.get(site.kind, ()):
            if load_site_rule(rule).recognises(view, site):
                found.setdefault(rule, []).append(site)
                break
    return found


def _loop_sites(view: CaptureView) -> Iterator[CallSite]:
    """Yield the sites of the loop's thread. The loop does not wait for other threads."""
    if not view.steps or not view.step_seconds:
        return
    for site in view.sites:
        events = tuple(event for event in site.events if event.thread == view.steps.thread)
        if events:
            yield CallSite(site.kind, site.api, site.line, events, site.steps)


def _merge_by_line(sites: Iterable[CallSite]) -> Iterator[CallSite]:
    """Merge calls on one line, such as `tensor.cpu().numpy()`, under the name of the longest."""
    lines: dict[tuple[object, ...], list[CallSite]] = {}
    for site in sites:
        lines.setdefault((site.kind, site.line or site.api), []).append(site)
    for same in lines.values():
        longest = max(same, key=lambda site: site.seconds)
        events = tuple(event for site in same for event in site.events)
        yield CallSite(longest.kind, longest.api, longest.line, events, longest.steps)
