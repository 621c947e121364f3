"""One event has one accuser: of the rules that recognise what a line does, the most specific one charges for it. Pure.

A rule with a place in `PRECEDENCE` has `recognises(case, site)` beside `examine(case)`; what it may charge for is
`charged(case, rule)`. What no event stands for (Python, launches) is charged by `tiny_ops`, `eager` or a setting in
`threads` where operations were counted, else by `small_batch`. What only the device tells of, kernels and copies that
nobody waited for, is charged by the rules that look at `case.device`. `constants` and `out_of_memory` charge nothing:
they warn.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from weakref import WeakKeyDictionary

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.model.events import Kind

__all__ = ["PRECEDENCE", "charged"]

PRECEDENCE: dict[Kind, tuple[str, ...]] = {
    Kind.UPLOAD: (
        "repeated_upload",  # nothing needs to cross at all
        "fits_on_device",  # nothing needs to cross again
        "many_small_copies",  # once would do
        "wide_dtype",  # half the bytes would do
        "loader",  # a setting makes it fast
        "pageable_upload",  # it could be fast
        "conversion_in_loop",  # it could be done ahead
    ),
    Kind.DOWNLOAD: ("host_check", "read_back"),
    Kind.SYNC: ("sync",),
    Kind.INPUT: ("rebuilt", "loader", "threads", "input_bound"),
    Kind.BUILD: ("rebuilt",),
    Kind.COMPILE: ("rebuilt", "retracing"),
    Kind.RUN: ("rebuilt",),
    Kind.MOVE: ("pageable_upload", "placement"),
    Kind.OPS: ("threads", "tiny_ops", "eager"),
}

_judged: WeakKeyDictionary[Case, dict[str, list[Site]]] = WeakKeyDictionary()


def charged(case: Case, rule: str, *kinds: Kind) -> list[Site]:
    """What this rule is to charge for, of these kinds; calls of one kind on one line together, the longest first."""
    if case not in _judged:
        _judged[case] = _judge(case)
    sites = [site for site in _judged[case].get(rule, []) if not kinds or site.kind in kinds]
    return sorted(_by_line(sites), key=lambda site: -site.seconds)


def _judge(case: Case) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = {}
    for site in _own(case):
        for rule in PRECEDENCE.get(site.kind, ()):
            if _recogniser(rule)(case, site):
                found.setdefault(rule, []).append(site)
                break
    return found


def _own(case: Case) -> Iterator[Site]:
    """What the loop's own thread does: the others keep nobody waiting. Steps of no length are none."""
    if not case.steps or not case.step_seconds:
        return
    for site in case.sites:
        events = tuple(event for event in site.events if event.thread == case.steps.thread)
        if events:
            yield Site(site.kind, site.api, site.line, events, site.steps)


def _recogniser(rule: str) -> Callable[[Case, Site], bool]:
    recognises: Callable[[Case, Site], bool] = import_module(f"forebay.doctor.rules.{rule}").recognises
    return recognises


def _by_line(sites: Iterable[Site]) -> Iterator[Site]:
    """`tensor.cpu().numpy()` is two calls and one accusation, by the name of the longer one."""
    lines: dict[tuple[object, ...], list[Site]] = {}
    for site in sites:
        lines.setdefault((site.kind, site.line or site.api), []).append(site)
    for same in lines.values():
        longest = max(same, key=lambda site: site.seconds)
        events = tuple(event for site in same for event in site.events)
        yield Site(longest.kind, longest.api, longest.line, events, longest.steps)
