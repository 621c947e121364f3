"""Hooks for Forebay: waits for batches of a feed, and the times of user maps."""

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_hook
from forebay.doctor.model.events import FEED_API, EventKind
from forebay.feed.epoch import Epoch
from forebay.transforms.ops import Map

__all__ = ["install"]

MAP = "map"  # API name of the events, and their detail `what`

Description = tuple[int, dict[str, Any]]  # bytes and details of an event


def install(patches: Patches) -> None:
    descriptions: WeakKeyDictionary[Any, Description] = WeakKeyDictionary()
    patches.hook(Epoch, "__next__", EventKind.INPUT, FEED_API, partial(_describe_batch, descriptions))
    patches.replace(Map, "apply", lambda original: _hook_map(patches.ledger, original), api=MAP)


def _describe_batch(descriptions: WeakKeyDictionary[Any, Description], batch: Any, epoch: Any) -> Description:
    """Return the bytes and details of the event of a batch.

    All batches of an epoch share the result, so this caches it. The bytes are those of a full batch.
    """
    if epoch not in descriptions:
        plan = epoch.plan
        plan_input = plan.input
        nbytes = plan_input.batch_rows * sum(spec.nbytes for spec in plan_input.specs)
        detail = {"loader": "forebay", "workers": plan.processes or None, "prefetch": plan.slots}
        descriptions[epoch] = nbytes, detail | {"batch_rows": plan_input.batch_rows}
    return descriptions[epoch]


def _hook_map(ledger: Ledger, original: Any) -> Any:
    """Wrap `Map.apply` in a hook. Each event has the line that defines the user function."""

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        transform, leaves = args[0], args[1]
        detail = {"what": MAP, "count": len(leaves[0]) if transform.by_row else 1}  # calls of the user function
        line = ledger.lines.line_of_function(transform.function)
        ledger.write((EventKind.PREPARE, MAP, line), start, end, detail=detail)

    return make_hook(ledger, MAP, original, write)
