"""Forebay's own feeds: how long the loop waits for a batch, and what of that is a map of the user's."""

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, hooked
from forebay.doctor.model.events import FEED, Kind
from forebay.feed.feed import Epoch
from forebay.transforms.ops import Map

__all__ = ["install"]

MAP = "map"


def install(patches: Patches) -> None:
    told: WeakKeyDictionary[Any, tuple[int, dict[str, Any]]] = WeakKeyDictionary()
    patches.watch(Epoch, "__next__", Kind.INPUT, FEED, partial(_taken, told))
    patches.replace(Map, "apply", lambda original: _watched_map(patches.ledger, original), api=MAP)


def _taken(told: WeakKeyDictionary[Any, tuple[int, dict[str, Any]]], batch: Any, epoch: Any) -> Any:
    """The same for every batch of an epoch."""
    if epoch not in told:
        plan = epoch._feed.plan
        demand = plan.demand
        nbytes = demand.batch_rows * sum(spec.nbytes for spec in demand.specs)
        detail = {"loader": "forebay", "workers": plan.processes or None, "prefetch": plan.slots}
        told[epoch] = nbytes, detail | {"batch_rows": demand.batch_rows}
    return told[epoch]


def _watched_map(ledger: Ledger, original: Any) -> Any:
    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        made, leaves = args[0], args[1]
        detail = {"what": MAP, "count": len(leaves[0]) if made.by_row else 1}
        ledger.write(Kind.PREPARE, MAP, ledger.lines.of_code(made.function), start, end, 0, detail)

    return hooked(ledger, MAP, original, write)
