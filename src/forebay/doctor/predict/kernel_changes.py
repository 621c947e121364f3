"""Changes of kernels and of the CUDA calls around them: fused, narrowed to 16 bits, shortened or removed."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from forebay.doctor.predict.changes import Change, remove_work
from forebay.doctor.predict.timeline import DeviceOperation, Timeline

__all__ = ["by_name", "fuse_elementwise", "remove_cuda_calls", "scale_kernels"]

# Kinds of host actions that may contain CUDA calls without an event of their own, such as allocations.
CALLING_KINDS = frozenset({"work", "launch", "run", "transform", "ops"})
Matches = Callable[[DeviceOperation], bool]  # whether a kernel changes


def by_name(matches_name: Callable[[str], bool]) -> Matches:
    """Return a function that selects kernels by their name. Kernels without a name stay as they are."""
    return lambda operation: bool(operation.name) and matches_name(operation.name)


def fuse_elementwise(matches: Matches, *, times_longest: float) -> Change:
    """Replace each run of matching kernels by one kernel.

    A run are kernels that follow each other on a stream. Each of them reads and writes memory, but their fusion only
    reads what the run reads first and writes what remains. So the fusion takes `times_longest` of the longest kernel of
    the run, and no longer than the run itself.
    """

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for run in _runs(timeline, matches):
            seconds = [operations[index].seconds for index in run]
            share = min(1.0, times_longest * max(seconds) / sum(seconds)) if sum(seconds) else 1.0
            for position, index in enumerate(run):  # each keeps a part: the host may wait for any of them
                gap_seconds = 0.0 if position else operations[index].gap_seconds
                operations[index] = replace(
                    operations[index], seconds=operations[index].seconds * share, gap_seconds=gap_seconds
                )
        return timeline.with_parts(operations=operations)

    return change


def scale_kernels(matches: Matches, share: float) -> Change:
    """Let matching kernels take a share of their time; 0.0 removes them."""

    def change(timeline: Timeline) -> Timeline:
        operations = [
            _resize(operation, operation.seconds * share) if _is_match(operation, matches) else operation
            for operation in timeline.operations
        ]
        return timeline.with_parts(operations=operations)

    return change


def remove_cuda_calls(seconds: float) -> Change:
    """Remove `seconds` per step of CUDA calls that queue no work, the same share of each action that may make them."""
    return remove_work(seconds, CALLING_KINDS)


def _runs(timeline: Timeline, matches: Matches) -> Iterator[list[int]]:
    """Yield the indices of matching kernels that follow each other on a stream, within a step."""
    runs: dict[int, list[int]] = {}  # by stream
    for action in timeline.actions:
        for index in action.queued_operations:
            operation = timeline.operations[index]
            if _is_match(operation, matches):
                runs.setdefault(operation.stream, []).append(index)
            else:
                yield from filter(None, [runs.pop(operation.stream, [])])
        if action.ends_step:
            yield from runs.values()
            runs = {}
    yield from runs.values()


def _is_match(operation: DeviceOperation, matches: Matches) -> bool:
    return operation.engine == "compute" and matches(operation)


def _resize(operation: DeviceOperation, seconds: float) -> DeviceOperation:
    """Return the operation with another time. An operation without time also has no pause before it."""
    return replace(operation, seconds=seconds, gap_seconds=operation.gap_seconds if seconds else 0.0)
