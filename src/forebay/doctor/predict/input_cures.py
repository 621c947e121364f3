"""The outcomes of cures of tf.data pipelines that the same cores run as the step."""

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.predict import call_changes, changes
from forebay.doctor.predict.outcomes import Changes, limit_by_cores

__all__ = ["has_free_cores", "limit_to_cores", "map_whole_batches"]

# Share of the wait that remains if a map handles whole batches instead of rows. Measured on two cores with a cast and a
# division of images of 784 bytes, 100 rows per batch (2026-11-17): 8 to 13 ms per batch, and 1.1 to 1.9 ms.
WHOLE_BATCH_SHARES = 0.1, 0.3
FREE_SHARE = 0.1  # of all cores; with fewer free cores, no thread can make batches during the step


def map_whole_batches(view: CaptureView) -> Changes:
    """Let the map of a pipeline handle whole batches, so that TensorFlow calls it once per batch."""
    return tuple(call_changes.scale_kinds(("input",), share) for share in WHOLE_BATCH_SHARES)


def has_free_cores(view: CaptureView) -> bool:
    """Whether cores were free while steps were timed; True if this was not measured."""
    busy, cores = view.capture.facts.get("busy_cores"), view.capture.machine.get("cores") or 1
    return not isinstance(busy, int | float) or busy <= cores * (1 - FREE_SHARE)


def limit_to_cores(view: CaptureView, outcomes: Changes) -> Changes:
    """Limit the outcomes of a cure that makes batches during the step, if no core is free for this."""
    if has_free_cores(view):
        return outcomes
    return tuple(changes.chain((outcome, limit_by_cores(view))) for outcome in outcomes)
