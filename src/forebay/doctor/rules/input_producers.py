"""The producers of the batches that a loop waits for, and the gain of more producers."""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, gain_by_overlap
from forebay.doctor.model.events import EventKind, LedgerEvent, Line

__all__ = [
    "SERIAL_MAP",
    "InputStage",
    "count_cores",
    "count_producers",
    "find_slow_stage",
    "gain_by_workers",
    "count_workers",
]

SERIAL_MAP = "mapped_at"  # event detail with the line of a tf.data map that runs one row at a time
LEAST_SHARE = 0.5  # of the wait; a stage that takes less is not its cause
LEAST_SHARE_OF_GENERATOR = 0.1  # lower, because the call for each row can take longer than the row
HAND_OVER_SECONDS = 1e-4, 1e-3  # to hand over a batch from another process, at least and at most


@dataclass(frozen=True, slots=True)
class InputStage:
    """The slowest stage of the input.

    The stage is Python code (row, collate, map or generator), a serial map, the workers or the loader.
    """

    name: str
    seconds: float
    line: Line | None = None
    on_other_thread: bool = False  # whether it shares the GIL with the loop, on another thread

    @property
    def is_python(self) -> bool:
        return self.name not in (SERIAL_MAP, "workers", "loader")


def find_slow_stage(view: CaptureView, site: CallSite) -> InputStage:
    """Return the slowest stage: the user's code if it takes most of the wait, on any thread."""
    wait = cost_of(view, site.events)
    costs = [(_cost_on_any_thread(view, prepare), prepare) for prepare in view.sites_of(EventKind.PREPARE)]
    cost, slowest = max(costs, key=lambda pair: pair[0], default=(0.0, None))
    least = LEAST_SHARE_OF_GENERATOR if "generator" in site.values("loader") else LEAST_SHARE
    if slowest is not None and cost >= least * wait and cost > 0:
        assert view.steps is not None
        on_other_thread = all(event.thread != view.steps.thread for event in slowest.events)
        return InputStage(str(next(iter(slowest.values("what")), "row")), cost, slowest.line, on_other_thread)
    if not costs and "tf.data" in site.values("loader") and (mapped := site.values(SERIAL_MAP)):
        return InputStage(SERIAL_MAP, wait, view.line(mapped[0]))
    return InputStage("workers" if count_workers(site) else "loader", wait)


def count_workers(site: CallSite) -> int:
    """Return the number of worker processes; 0 if unknown."""
    return max((int(workers) for workers in site.values("workers") if workers), default=0)


def count_producers(site: CallSite) -> int:
    """Return the number of workers, or 1 for a prefetching thread."""
    return count_workers(site) or int(any(site.values("prefetch")))


def count_cores(view: CaptureView) -> int:
    return int(view.capture.machine.get("cores") or 1)


def gain_by_workers(view: CaptureView, site: CallSite, wait: float) -> tuple[float, float]:
    """Return the least and the largest gain with one worker per core.

    Without producers, the loop makes the batch while it waits, so the wait is the time to make one. With producers,
    each producer is busy for the whole step. A step cannot be shorter than the time to make a batch, divided
    by the number of cores.
    """
    producers = count_producers(site)
    making = view.step_seconds * producers if producers else wait
    least, most = (0.0, 0.0) if producers else HAND_OVER_SECONDS
    high = max(0.0, min(wait, view.step_seconds - making / count_cores(view)) - least)
    low = 0.0 if producers else gain_by_overlap(view, wait)[0] - most
    return max(0.0, min(low, high)), high


def _cost_on_any_thread(view: CaptureView, prepare: CallSite) -> float:
    assert view.steps is not None
    thread = view.steps.thread
    events: list[LedgerEvent] = [event._replace(thread=thread) for event in prepare.events]
    return cost_of(view, events)
