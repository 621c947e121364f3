"""A timeline of a device that was not recorded, which works for as long as the record of the host allows.

The waits of the host show when the device had finished. The device may have started with the first operation that the
host queued after the wait before. A cure that shortens the host during this time may save nothing. A cure that shortens
the host while the device has surely no work saves its time. If the host never waits, the device may limit each step.
"""

from collections.abc import Collection
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.host_time import WAIT_KINDS
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, steady_step_seconds

__all__ = ["has_unseen_device", "with_slowest_device"]

# If the hooks record every compiled call and operation of a framework, nothing else queues work for its device.
_RECORDED_KINDS = frozenset({EventKind.RUN, EventKind.TRANSFORM})


def has_unseen_device(view: CaptureView) -> bool:
    """Whether a device worked in parallel to the host, without a record. On a CPU, JAX computes in its own threads."""
    return view.device is None and (view.has_gpu or "jax" in view.frameworks)


def with_slowest_device(view: CaptureView, timeline: Timeline) -> Timeline:
    """Return the timeline of the host with a device that works for as long as possible."""
    actions = timeline.actions
    waits = [index for index, action in enumerate(actions) if action.kind in WAIT_KINDS and action.seconds]
    if not waits:
        return timeline.with_parts(min_step_seconds=steady_step_seconds(timeline))
    can_queue = _RECORDED_KINDS if _records_all_work(view) else None
    changed, operations = list(actions), []
    for number, wait in enumerate(waits):
        # The simulation repeats the timeline, so the last wait precedes the first.
        between = (
            [*range(waits[number - 1] + 1, wait)] if number else [*range(waits[-1] + 1, len(actions)), *range(wait)]
        )
        skipped = next((place for place, index in enumerate(between) if _may_queue(actions[index], can_queue)), None)
        queueing = waits[number - 1] if not skipped else between[skipped - 1]
        busy = [] if skipped is None else between[skipped:]
        operations.append(DeviceOperation(sum(actions[index].seconds for index in (*busy, wait))))
        changed[queueing] = _queueing(changed[queueing], number)
        changed[wait] = replace(changed[wait], seconds=0.0, awaited_operations=(number,))
    return Timeline(tuple(changed), tuple(operations), timeline.min_step_seconds)


def _may_queue(action: HostAction, kinds: Collection[str] | None) -> bool:
    """Whether an action may queue work for the device; with `kinds`, only actions of these kinds may."""
    return kinds is None or action.kind in kinds


def _queueing(action: HostAction, operation: int) -> HostAction:
    """Return the action, which also queues the operation at its end."""
    return replace(action, queued_operations=(*action.queued_operations, operation))


def _records_all_work(view: CaptureView) -> bool:
    """Whether only compiled calls queue work: the loop has such calls, and no single operations."""
    has_runs = any(site.in_loop for site in view.sites_of(*_RECORDED_KINDS))
    return has_runs and not any(view.sites_of(EventKind.OPS)) and "torch" not in view.frameworks
