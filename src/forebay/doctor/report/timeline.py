"""The timeline data that the page's script draws, limited to what a browser can handle."""

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

__all__ = ["MOST_EVENTS", "timeline_data"]

MOST_EVENTS = 20_000  # a browser draws this many smoothly, and they take half a megabyte of the page
TICK_NS = 100  # nanoseconds; all times of the timeline data are multiples of it
LONGEST_TEXT = 160  # characters of a source line

SiteKey = tuple[str, str, int]  # kind, api, line


def timeline_data(view: CaptureView) -> dict[str, Any]:
    """Return tracks, call sites and steps.

    Each event is a start (ticks after the previous start), a length in ticks, a call site and a number of bytes.
    """
    edges, first = _step_edges(view)
    events, summary = _select_events(all_events(view.capture), edges[first:])
    zero = min((event.start for event in events), default=0)
    last = max((event.end for event in events), default=0)
    steps = [edge for edge in edges if zero <= edge <= last]
    sites: dict[SiteKey, int] = {}
    tracks = [
        {"name": track.name, "rows": [_row(row, zero, sites) for row in track.rows]}
        for track in tracks_of(view, events)
    ]
    return {
        "tick_seconds": TICK_NS / 1e9,
        "length": (last - zero) // TICK_NS,
        "tracks": tracks,
        "sites": [_site(view, site) for site in sites],
        "steps": [(edge - zero) // TICK_NS for edge in steps],
        "first_step": steps.index(edges[first]) if edges and edges[first] in steps else 0,
        "summary": summary,
    }


def _step_edges(view: CaptureView) -> tuple[list[int], int]:
    """Return the edges of all steps, and the index of the step to show first.

    That is the first step recorded on the device, if there is one.
    """
    steady = list(view.steps.edges) if view.steps else []
    traced = view.capture.window.traced if view.capture.device else ()
    edges = sorted({*steady, *traced})
    return edges, edges.index(traced[0]) if len(traced) > 1 else 0


def _select_events(events: Sequence[LedgerEvent], edges: Sequence[int]) -> tuple[Sequence[LedgerEvent], str]:
    """Select all events or, if they are too many, as many whole steps as possible.

    Returns the events and a sentence that describes the selection.
    """
    if len(events) <= MOST_EVENTS:
        return events, f"All {format_count(len(events), 'event')} of the run."
    if len(edges) < 2:
        return _longest_events(events), _describe_longest(len(events), "the run")
    inside = sorted((event for event in events if event.end > edges[0]), key=lambda event: event.end)
    ends = [event.end for event in inside]
    upto = [bisect_right(ends, edge) for edge in edges[1:]]
    whole = sum(count <= MOST_EVENTS for count in upto)
    if not whole:
        return _longest_events(inside[: upto[0]]), _describe_longest(upto[0], "one step")
    shown = f"The first {whole:,} of {format_count(len(upto), 'step')}: {format_count(upto[whole - 1], 'event')}"
    return inside[: upto[whole - 1]], f"{shown} of {len(events):,} in the run."


def _longest_events(events: Sequence[LedgerEvent]) -> Sequence[LedgerEvent]:
    return sorted(events, key=lambda event: event.start - event.end)[:MOST_EVENTS]


def _describe_longest(count: int, of: str) -> str:
    return f"The {MOST_EVENTS:,} longest of {format_count(count, 'event')} of {of}."


def _row(events: Sequence[LedgerEvent], zero: int, sites: dict[SiteKey, int]) -> dict[str, list[int]]:
    starts = [(event.start - zero) // TICK_NS for event in events]
    return {
        "starts": [after - before for before, after in pairwise([0, *starts])],
        "lengths": [(event.end - event.start) // TICK_NS for event in events],
        "sites": [sites.setdefault((event.kind, event.api, event.line), len(sites)) for event in events],
        "nbytes": [event.nbytes for event in events],
    }


def _site(view: CaptureView, site: SiteKey) -> dict[str, str]:
    kind, api, number = site
    line = view.line(number)
    return {
        "kind": kind,
        "color": color_of_kind(kind),
        "api": truncate(to_one_line(api), LONGEST_TEXT),
        "place": format_location(line, view.capture.script) if line else "",
        "text": truncate(to_one_line(line.text), LONGEST_TEXT) if line else "",
    }
