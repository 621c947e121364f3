"""The timeline as numbers for the page's script: few enough to be drawn at once, whole steps first. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.events import Event
from forebay.doctor.model.formatting import at_most, counted, near, plain
from forebay.doctor.report.colors import tone_of_kind
from forebay.doctor.report.device_events import all_events
from forebay.doctor.report.tracks import lanes_of

__all__ = ["MOST_EVENTS", "timeline_of"]

MOST_EVENTS = 20_000  # that a browser draws without a stutter, in half a megabyte of page
TICK = 100  # nanoseconds: times are counted in these
LONGEST_TEXT = 160  # letters of a source line

Site = tuple[str, str, int]  # kind, api, line


def timeline_of(case: Case) -> dict[str, Any]:
    """Lanes of rows of events, each a start (ticks since the one before), a length, a site and bytes."""
    edges, first = _edges(case)
    events, told = _chosen(all_events(case.capture), edges[first:])
    zero = min((event.start for event in events), default=0)
    last = max((event.end for event in events), default=0)
    steps = [edge for edge in edges if zero <= edge <= last]
    sites: dict[Site, int] = {}
    lanes = [
        {"name": lane.name, "rows": [_row(row, zero, sites) for row in lane.rows]} for lane in lanes_of(case, events)
    ]
    return {
        "tick_seconds": TICK / 1e9,
        "length": (last - zero) // TICK,
        "lanes": lanes,
        "sites": [_site(case, site) for site in sites],
        "steps": [(edge - zero) // TICK for edge in steps],
        "first_step": steps.index(edges[first]) if edges and edges[first] in steps else 0,
        "told": told,
    }


def _edges(case: Case) -> tuple[list[int], int]:
    """Where steps begin and end, and at which of them to look first: one that was recorded on the device, if any."""
    steady = list(case.steps.edges) if case.steps else []
    traced = case.capture.window.traced if case.capture.device else ()
    edges = sorted({*steady, *traced})
    return edges, edges.index(traced[0]) if len(traced) > 1 else 0


def _chosen(events: Sequence[Event], edges: Sequence[int]) -> tuple[Sequence[Event], str]:
    """Everything where it is not too much, else as many whole steps as may be; and which, in words."""
    if len(events) <= MOST_EVENTS:
        return events, f"All {counted(len(events), 'event')} of the run."
    if len(edges) < 2:
        return _longest(events), _only_longest(len(events), "the run")
    inside = sorted((event for event in events if event.end > edges[0]), key=lambda event: event.end)
    ends = [event.end for event in inside]
    upto = [bisect_right(ends, edge) for edge in edges[1:]]
    whole = sum(count <= MOST_EVENTS for count in upto)
    if not whole:
        return _longest(inside[: upto[0]]), _only_longest(upto[0], "one step")
    told = f"The first {whole:,} of {counted(len(upto), 'step')}: {counted(upto[whole - 1], 'event')}"
    return inside[: upto[whole - 1]], f"{told} of {len(events):,} that were seen in all."


def _longest(events: Sequence[Event]) -> Sequence[Event]:
    return sorted(events, key=lambda event: event.start - event.end)[:MOST_EVENTS]


def _only_longest(count: int, of: str) -> str:
    return f"The {MOST_EVENTS:,} longest of {counted(count, 'event')} of {of}."


def _row(events: Sequence[Event], zero: int, sites: dict[Site, int]) -> dict[str, list[int]]:
    starts = [(event.start - zero) // TICK for event in events]
    return {
        "starts": [after - before for before, after in pairwise([0, *starts])],
        "lengths": [(event.end - event.start) // TICK for event in events],
        "sites": [sites.setdefault((event.kind, event.api, event.line), len(sites)) for event in events],
        "nbytes": [event.nbytes for event in events],
    }


def _site(case: Case, site: Site) -> dict[str, str]:
    kind, api, number = site
    line = case.line(number)
    return {
        "kind": kind,
        "tone": tone_of_kind(kind),
        "api": at_most(plain(api), LONGEST_TEXT),
        "place": near(line, case.capture.script) if line else "",
        "text": at_most(plain(line.text), LONGEST_TEXT) if line else "",
    }
