"""An operation placed elsewhere than its neighbours: its inputs move there and its results back, every step."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import ROUND_TRIP_SECONDS, cost_of
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import Event, Kind
from forebay.doctor.predict import cure_changes
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.pageable_upload import PAGEABLE_BYTES_PER_SECOND
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import often

__all__ = ["examine", "recognises"]


def recognises(case: Case, site: Site) -> bool:
    return site.in_loop


def examine(case: Case) -> Iterator[Finding]:
    """What goes there comes back, and its gradient after it: one finding for each two devices."""
    pairs: dict[frozenset[str], list[Site]] = {}
    for site in charged(case, "placement"):
        pairs.setdefault(frozenset(_devices(site)), []).append(site)
    for sites in pairs.values():
        yield _finding(case, sorted(sites, key=lambda site: site.events[0].start))


def _finding(case: Case, sites: list[Site]) -> Finding:
    """The one that moves first in a step is the cause: the others follow."""
    first, events = sites[0], [event for site in sites for event in site.events]
    untimed = [event for event in events if (event.detail or {}).get("timed") is False]
    cost = max(cost_of(case, events), _estimated(case, untimed))
    source, target = _devices(first)
    moved = f"{format_nbytes(first.nbytes) if first.nbytes else 'a tensor'} from {source} to {target}"
    others = [f"line {site.line.number}" if site.line else site.api for site in sites[1:]]
    code = _CODE.get(framework_of(case, first.api), _CODE["torch"])
    how = _ESTIMATED if untimed else _MEASURED
    follows = (f"moves follow from it at {', '.join(others[:3])}",) if others else ()
    return Finding(
        rule="placement",
        title=f"{_first(first, 'op', first.api)} moves {moved} {often(first)}",
        line=first.line,
        seconds=cost,
        cures=(Cure("place it where its data is", code, 0.0, cost, how, cure_changes.moved(case, *sites)),),
        evidence=(f"{len(events)} moves in {first.steps} steps", *follows),
    )


def _estimated(case: Case, moves: list[Event]) -> float:
    """Seconds of a step that moves inside graphs take at least, which nobody timed; never more than the runs took."""
    if not case.steps or not moves:
        return 0.0
    crossing = sum(event.nbytes / PAGEABLE_BYTES_PER_SECOND + ROUND_TRIP_SECONDS for event in moves) / len(case.steps)
    return min(crossing, cost_of(case, [event for site in case.of(Kind.RUN) for event in site.events]))


def _devices(site: Site) -> tuple[str, str]:
    return _short(_first(site, "source", "one device")), _short(_first(site, "target", "another"))


def _first(site: Site, name: str, otherwise: str) -> str:
    return str(next((value for value in site.values(name) if value), otherwise))


def _short(device: str) -> str:
    """`/job:localhost/replica:0/task:0/device:GPU:0` is GPU:0."""
    return device.rsplit("device:", 1)[-1]


_MEASURED = "the moves as measured; the operation itself is not counted, and waits in the moves may stay"
_ESTIMATED = "from the bytes, at the speed of pageable memory: inside a graph nobody could measure the moves"
_CODE = {
    "tensorflow": 'with tf.device("/GPU:0"): ...   # and tf.debugging.set_log_device_placement(True) says what has no '
    "kernel there: int32 and strings often not",
    "torch": "index = index.to(x.device)   # once, in front of the loop: everything of a step on one device",
    "jax": "table = jax.device_put(table, x.device)   # once, in front of the loop: jnp.from_dlpack leaves "
    "it on the host",
    "cupy": "with cupy.cuda.Device(0): ...   # everything of a step on one device",
}
