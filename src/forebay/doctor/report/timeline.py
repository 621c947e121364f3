"""Data of the timeline on the HTML page, limited to what a browser can draw."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.model.formatting import format_count, format_location, to_one_line, truncate
from forebay.doctor.report.colors import color_of_kind
from forebay.doctor.report.device_events import all_events
from forebay.doctor.report.tracks import tracks_of

__all__ = ["MAX_EVENTS", "timeline_data"]

MAX_EVENTS = 20_000  # a browser draws them smoothly, and they add half a megabyte to the page
TICK_NS = 100  # nanoseconds; the unit of all times in the timeline data
MAX_TEXT_LENGTH = 160  # characters of a source line or an API name

SiteKey = tuple[str, str, int]  # `LedgerEvent.site`: kind, API and line


def timeline_data(view: CaptureView) -> dict[str, Any]:
    """Return tracks, call sites and steps for `page/timeline.js`.

    Times are in ticks of TICK_NS. An event has a start relative to the previous start in its row, a length, the index
    of a call site and a number of bytes.
    """
    edges, first = _step_edges(view)
    events, summary = _select_events(all_events(view.capture), edges[first:])
    zero = min((event.start for event in events), default=0)  # nanoseconds
    end = max((event.end for event in events), default=0)
    steps = [edge for edge in edges if zero <= edge <= end]
    sites: dict[SiteKey, int] = {}
    tracks = [
        {"name": track.name, "rows": [_encode_row(row, zero, sites) for row in track.rows]}
        for track in tracks_of(view, events)
    ]
    return {
        "tick_seconds": TICK_NS / 1e9,
        "length": (end - zero) // TICK_NS,
        "tracks": tracks,
        "sites": [_describe_site(view, site) for site in sites],
        "steps": [(edge - zero) // TICK_NS for edge in steps],
        "first_step": steps.index(edges[first]) if edges and edges[first] in steps else 0,
        "summary": summary,
    }


def _step_edges(view: CaptureView) -> tuple[list[int], int]:
    """Return the edges of all steps, and the index of the step to show first.

    An edge is the time in nanoseconds at which one step ends and the next begins. The page first shows the first step
    that was recorded on the device, if there is one.
    """
    profiled = list(view.steps.edges) if view.steps else []
    traced = view.capture.window.traced if view.capture.device else ()
    edges = sorted({*profiled, *traced})
    return edges, edges.index(traced[0]) if len(traced) > 1 else 0


def _select_events(events: Sequence[LedgerEvent], edges: Sequence[int]) -> tuple[Sequence[LedgerEvent], str]:
    """Return the events to draw, and a sentence that describes them.

    The page draws at most MAX_EVENTS events. If the run has more, return the events of as many whole steps as possible,
    from `edges[0]` on. If the first step alone exceeds the limit, return its longest events. Without steps, return the
    longest events of the run.
    """
    if len(events) <= MAX_EVENTS:
        return events, f"All {format_count(len(events), 'event')} of the run."
    if len(edges) < 2:
        return _longest_events(events), _describe_longest(len(events), "the run")
    by_end = sorted((event for event in events if event.end > edges[0]), key=lambda event: event.end)
    ends = [event.end for event in by_end]
    counts = [bisect_right(ends, edge) for edge in edges[1:]]  # number of events up to the end of each step
    step_count = sum(count <= MAX_EVENTS for count in counts)
    if not step_count:
        return _longest_events(by_end[: counts[0]]), _describe_longest(counts[0], "one step")
    event_count = counts[step_count - 1]
    steps = f"The first {step_count:,} of {format_count(len(counts), 'step')}"
    return by_end[:event_count], f"{steps}: {format_count(event_count, 'event')} of {len(events):,} in the run."


def _longest_events(events: Sequence[LedgerEvent]) -> Sequence[LedgerEvent]:
    return sorted(events, key=lambda event: event.start - event.end)[:MAX_EVENTS]


def _describe_longest(count: int, period: str) -> str:
    return f"The {MAX_EVENTS:,} longest of {format_count(count, 'event')} of {period}."


def _encode_row(events: Sequence[LedgerEvent], zero: int, sites: dict[SiteKey, int]) -> dict[str, list[int]]:
    """Return the events of one row as lists, and add new call sites to `sites`."""
    starts = [(event.start - zero) // TICK_NS for event in events]
    return {
        "starts": [after - before for before, after in pairwise([0, *starts])],
        "lengths": [(event.end - event.start) // TICK_NS for event in events],
        "sites": [sites.setdefault(event.site, len(sites)) for event in events],
        "nbytes": [event.nbytes for event in events],
    }


def _describe_site(view: CaptureView, site: SiteKey) -> dict[str, str]:
    kind, api, number = site
    line = view.line(number)
    return {
        "kind": kind,
        "color": color_of_kind(kind),
        "api": truncate(to_one_line(api), MAX_TEXT_LENGTH),
        "place": format_location(line, view.capture.script) if line else "",
        "text": truncate(to_one_line(line.text), MAX_TEXT_LENGTH) if line else "",
    }
