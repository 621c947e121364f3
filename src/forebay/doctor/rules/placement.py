"""The rule for operations whose data must move, because it is on another device."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import ROUND_TRIP_SECONDS, cost_of
from forebay.doctor.analyse.framework import framework_of, is_device
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.predict import cure_changes
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.pageable_upload import PAGEABLE_BYTES_PER_SECOND
from forebay.doctor.rules.placement_edits import fit_placement, shorten_device
from forebay.doctor.rules.precedence import RuleView
from forebay.doctor.rules.wording import frequency, nbytes_per_call

__all__ = ["examine", "recognises"]


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether a call site in the loop moves data between devices, other than its batch."""
    return site.in_loop and not _uploads_batch(view, site)


def _uploads_batch(view: CaptureView, site: CallSite) -> bool:
    """Whether an operation only uploads its batch, which every loop must do."""
    is_upload = any(map(is_device, site.values("target"))) and not any(map(is_device, site.values("source")))
    batches = [batch for batch in view.sites_of(EventKind.INPUT) if batch.in_loop]
    return is_upload and any(0 < nbytes_per_call(site) <= nbytes_per_call(batch) for batch in batches)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per pair of devices.

    One misplaced operation causes several moves between the same devices: of its data, its results and its gradients.
    """
    pairs: dict[frozenset[str], list[CallSite]] = {}
    for site in view.sites_for("placement"):
        pairs.setdefault(frozenset(_devices(site)), []).append(site)
    for sites in pairs.values():
        yield _finding(view, sorted(sites, key=lambda site: site.events[0].start))


def _finding(view: CaptureView, sites: list[CallSite]) -> Finding:
    """Build the finding for the moves between two devices.

    The rule takes the first move for the cause of the other moves.
    """
    first, events = sites[0], [event for site in sites for event in site.events]
    untimed = [event for event in events if (event.detail or {}).get("timed") is False]
    untimed_seconds = _estimate_seconds(view, untimed)
    cost = max(cost_of(view, events), untimed_seconds)
    source, target = _devices(first)
    move = f"{format_nbytes(nbytes_per_call(first)) if first.nbytes else 'a tensor'} from {source} to {target}"
    others = [f"line {site.line.number}" if site.line else site.api for site in sites[1:]]
    framework = framework_of(view, first.api)
    fitted = (fit_placement(view, site, framework) for site in sites)
    code = next(filter(None, fitted), _CODE.get(framework, _CODE["torch"]))
    basis = _ESTIMATE_BASIS if untimed else _MEASURED_BASIS
    other_moves = (f"This move causes other moves at {', '.join(others[:3])}.",) if others else ()
    return Finding(
        rule="placement",
        title=f"{_first_value(first, 'op', first.api)} moves {move} {frequency(first)}",
        line=first.line,
        seconds=cost,
        cures=(
            Cure(
                "keep the operation and all its data on one device",
                code,
                basis=basis,
                changes=cure_changes.move_to_device(view, *sites, untimed_seconds=untimed_seconds),
            ),
        ),
        evidence=(f"{len(events)} moves happened in {first.steps} steps.", *other_moves),
    )


def _estimate_seconds(view: CaptureView, moves: list[LedgerEvent]) -> float:
    """Estimate the seconds per step of untimed moves inside graphs.

    The estimate is at most the time of the compiled calls, which contain these moves.
    """
    if not view.steps or not moves:
        return 0.0
    seconds = sum(event.nbytes / PAGEABLE_BYTES_PER_SECOND + ROUND_TRIP_SECONDS for event in moves) / len(view.steps)
    return min(seconds, cost_of(view, [event for site in view.sites_of(EventKind.RUN) for event in site.events]))


def _devices(site: CallSite) -> tuple[str, str]:
    """Return the short names of the source and the target device."""
    source, target = _first_value(site, "source", "one device"), _first_value(site, "target", "another")
    return shorten_device(source), shorten_device(target)


def _first_value(site: CallSite, name: str, default: str) -> str:
    return str(next((value for value in site.values(name) if value), default))


_MEASURED_BASIS = (
    "the cure removes the measured time of the moves, not that of the operation. A part of it may be a wait for the "
    "device, which remains"
)
_ESTIMATE_BASIS = "the time of moves inside a graph cannot be measured, so it is estimated from their number and bytes"
_CODE = {
    "tensorflow": 'with tf.device("/GPU:0"): ...   # tf.debugging.set_log_device_placement(True) shows operations '
    "without a GPU kernel, often operations on int32 or strings",
    "torch": "index = index.to(x.device)   # once, before the loop: keep all data of a step on one device",
    "jax": "table = jax.device_put(table, x.device)   # once, before the loop; an array from jnp.from_dlpack stays on "
    "the host until then",
    "cupy": "with cupy.cuda.Device(0): ...   # keep all data of a step on one device",
}
