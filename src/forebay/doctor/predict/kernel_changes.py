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
    """Replace each sequence of matching kernels by one kernel.

    The kernels of a sequence follow each other on a stream. Each of them reads and writes memory, but the fused kernel
    only reads the inputs of the sequence and writes its results. So it takes `times_longest` times as long as the
    longest kernel of the sequence, and no longer than the sequence itself.
    """

    def change(timeline: Timeline) -> Timeline:
        operations = list(timeline.operations)
        for sequence in _find_sequences(timeline, matches):
            seconds = [operations[index].seconds for index in sequence]
            share = min(1.0, times_longest * max(seconds) / sum(seconds)) if sum(seconds) else 1.0
            # Shorten every kernel instead of removing all but one, because the host may wait for any of them.
            for position, index in enumerate(sequence):
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


def _find_sequences(timeline: Timeline, matches: Matches) -> Iterator[list[int]]:
    """Yield the indices of matching kernels that follow each other on a stream, within a step."""
    sequences: dict[int, list[int]] = {}  # by stream
    for action in timeline.actions:
        for index in action.queued_operations:
            operation = timeline.operations[index]
            if _is_match(operation, matches):
                sequences.setdefault(operation.stream, []).append(index)
            else:
                yield from filter(None, [sequences.pop(operation.stream, [])])
        if action.ends_step:
            yield from sequences.values()
            sequences = {}
    yield from sequences.values()


def _is_match(operation: DeviceOperation, matches: Matches) -> bool:
    return operation.engine == "compute" and matches(operation)


def _resize(operation: DeviceOperation, seconds: float) -> DeviceOperation:
    """Return the operation with another duration. A removed operation also has no gap before it."""
    return replace(operation, seconds=seconds, gap_seconds=operation.gap_seconds if seconds else 0.0)
