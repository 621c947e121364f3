"""A timeline with an assumed device, for captures without device records.

The assumed device works for as long as possible. It has finished when a wait of the host ends, and it may have started
with the first operation that the host queued after the previous wait. A cure that shortens host work in this time may
save nothing, because the step still waits for the device. A cure that shortens host work while the device certainly has
no work does save time. If the host never waits, the device may determine each step time.

On a CPU, the device of JAX is a pool of threads. It works for at most the CPU time of all threads except the loop's
thread.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.host_time import WAIT_KINDS
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, steady_step_seconds

__all__ = ["has_unseen_device", "with_slowest_device"]

# Kinds of events that queue work for a device. If the hooks record every compiled call and operation of a framework, no
# other host work queues work for its device.
_LAUNCHING_KINDS = frozenset({EventKind.RUN, EventKind.TRANSFORM})


def has_unseen_device(view: CaptureView) -> bool:
    """Whether a device may have worked in parallel to the host, but was not recorded.

    On a CPU, JAX counts as such a device, because it computes in its own threads.
    """
    return view.device is None and (computes_on_gpu(view) or "jax" in view.frameworks)


def with_slowest_device(view: CaptureView, timeline: Timeline) -> Timeline:
    """Return the host's timeline with a device that works for as long as possible."""
    actions, share = timeline.actions, _largest_device_share(view)
    waits = [index for index, action in enumerate(actions) if action.kind in WAIT_KINDS and action.seconds]
    if not waits:
        return timeline.with_parts(min_step_seconds=steady_step_seconds(timeline) * share)
    queueing_kinds = _LAUNCHING_KINDS if _records_all_work(view) else None
    changed, operations = list(actions), []
    for number, wait in enumerate(waits):
        # The simulation repeats the timeline, so the last wait precedes the first.
        between = (
            [*range(waits[number - 1] + 1, wait)] if number else [*range(waits[-1] + 1, len(actions)), *range(wait)]
        )
        first = next(
            (position for position, index in enumerate(between) if _may_queue(actions[index], queueing_kinds)), None
        )
        # The device is busy from the start of the first action that may queue work. In the simulation, an action queues
        # operations at its end. So the action before this first action queues the operation.
        idle, busy = (between, []) if first is None else (between[:first], between[first:])
        idle, operation = _slowest_operation(actions, idle, busy, wait, share)
        operations.append(operation)
        previous = idle[-1] if idle and first is not None else waits[number - 1]
        changed[previous] = _with_queued(changed[previous], number)
        changed[wait] = replace(changed[wait], seconds=0.0, awaited_operations=(number,))
    return timeline.with_parts(actions=changed, operations=operations)


def _slowest_operation(
    actions: Sequence[HostAction], idle: list[int], busy: list[int], wait: int, share: float
) -> tuple[list[int], DeviceOperation]:
    """Return the actions before the assumed operation of the device, and this operation.

    The operation is the longest one for which the host may have waited. It runs during the actions of `busy` and ends
    with the wait. The device can work only for `share` of the time since the previous wait. If this is shorter, the
    operation starts later.
    """
    waited, worked = actions[wait].seconds, sum(actions[index].seconds for index in busy)
    elapsed = waited + worked + sum(actions[index].seconds for index in idle)
    seconds = min(waited + worked, max(waited, share * elapsed))
    delay, queued = waited + worked - seconds, list(idle)
    for index in busy:
        if delay < actions[index].seconds:
            break
        delay -= actions[index].seconds
        queued.append(index)
    return queued, DeviceOperation(seconds, latency_seconds=delay)


def _largest_device_share(view: CaptureView) -> float:
    """Return the largest share of the time for which the device may work.

    With JAX on the CPU, the threads other than the loop's thread do the work of the device. So the device works for at
    most their CPU time.
    """
    other_cores = view.capture.facts.get("other_cores")
    if view.has_gpu or not isinstance(other_cores, int | float):
        return 1.0
    return min(1.0, float(other_cores))


def _may_queue(action: HostAction, kinds: Collection[str] | None) -> bool:
    """Whether an action may queue work for the device: any action, or one of `kinds`."""
    return kinds is None or action.kind in kinds


def _with_queued(action: HostAction, operation: int) -> HostAction:
    """Return the action with one more operation, which it queues at its end."""
    return replace(action, queued_operations=(*action.queued_operations, operation))


def _records_all_work(view: CaptureView) -> bool:
    """Whether only compiled calls queue work: the loop has such calls, and no single operations."""
    has_runs = any(site.in_loop for site in view.sites_of(*_LAUNCHING_KINDS))
    return has_runs and not any(view.sites_of(EventKind.OPS)) and "torch" not in view.frameworks
