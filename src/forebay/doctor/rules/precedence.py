"""Assignment of each call site to the most specific rule that recognises it.

A rule in `PRECEDENCE` defines `recognises(view, site)` and `examine(view)`. `RuleView.sites_for(rule)` returns the
call sites that it assigned to the rule.

The other rules need no assignment. `made_in_loop` explains Python code before uploads.
`small_batch` and `launch_bound` explain the time of Python and of launches, unless `settings`, `tiny_ops` or `eager`
explains the operations of the loop. `constants`, `graph_breaks` and `out_of_memory` only warn. The remaining rules read
device records, samples of the host, or the history of the step times.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.model.capture import Capture
from forebay.doctor.model.events import EventKind

__all__ = ["PRECEDENCE", "RuleView"]

PRECEDENCE: dict[EventKind, tuple[str, ...]] = {  # rule ids, most specific first; a comment says what the rule states
    EventKind.UPLOAD: (
        "repeated_upload",  # the loop needs no upload
        "fits_on_device",  # the loop needs no upload after the first epoch
        "many_small_copies",  # one upload per step is enough
        "wide_dtype",  # fewer bytes are enough
        "loader",  # a setting of the loader makes the upload fast
        "pageable_upload",  # page-locked memory makes the upload fast
        "conversion_in_loop",  # a prefetch hides the upload
    ),
    EventKind.DOWNLOAD: ("host_check", "read_back"),
    EventKind.SYNC: ("sync",),
    EventKind.INPUT: ("rebuilt", "loader", "threads", "input_bound"),
    EventKind.BUILD: ("rebuilt",),
    EventKind.COMPILE: ("rebuilt", "retracing"),
    EventKind.RUN: ("rebuilt",),
    EventKind.MOVE: ("pageable_upload", "placement"),
    EventKind.OPS: ("settings", "tiny_ops", "eager"),
}

Recognise = Callable[[CaptureView, CallSite], bool]


class RuleView(CaptureView):
    """A capture view that assigns each call site to at most one rule."""

    def __init__(self, capture: Capture, recognisers: Mapping[str, Recognise]) -> None:
        """Create a view. `recognisers` maps each rule of `PRECEDENCE` to its function `recognises`."""
        super().__init__(capture)
        self._recognisers = recognisers

    def sites_for(self, rule: str, *kinds: EventKind) -> list[CallSite]:
        """Return the call sites that are assigned to a rule, most time first.

        Calls of one kind on one line form one call site. Without `kinds`, the result has call sites of all kinds.
        """
        sites = [site for site in self._sites_by_rule.get(rule, []) if not kinds or site.kind in kinds]
        return sorted(_merge_by_line(sites), key=lambda site: -site.seconds)

    @cached_property
    def _sites_by_rule(self) -> dict[str, list[CallSite]]:
        sites: dict[str, list[CallSite]] = {}
        for site in _loop_sites(self):
            for rule in PRECEDENCE.get(site.kind, ()):
                if self._recognisers[rule](self, site):
                    sites.setdefault(rule, []).append(site)
                    break
        return sites


def _loop_sites(view: CaptureView) -> Iterator[CallSite]:
    """Yield the call sites with the events of the loop's thread only.

    Events of other threads take no time of the step.
    """
    if not view.steps or not view.step_seconds:
        return
    for site in view.sites:
        events = tuple(event for event in site.events if event.thread == view.steps.thread)
        if events:
            yield CallSite(site.kind, site.api, site.line, events, site.steps)


def _merge_by_line(sites: Iterable[CallSite]) -> Iterator[CallSite]:
    """Merge calls of one kind on one line, such as `tensor.cpu().numpy()`.

    The merged call site has the API name of the call that takes most time.
    """
    sites_by_line: dict[tuple[object, ...], list[CallSite]] = {}
    for site in sites:
        sites_by_line.setdefault((site.kind, site.line or site.api), []).append(site)
    for line_sites in sites_by_line.values():
        longest = max(line_sites, key=lambda site: site.seconds)
        events = tuple(event for site in line_sites for event in site.events)
        yield CallSite(longest.kind, longest.api, longest.line, events, longest.steps)
