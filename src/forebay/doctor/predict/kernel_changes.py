"""Changes that fuse, shorten or remove kernels, or remove CUDA calls.

The docstring of a function says what the returned change does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from forebay.doctor.analyse.kernel_bytes import arrays_of_foreach
from forebay.doctor.predict.changes import Change, remove_work
from forebay.doctor.predict.timeline import DeviceOperation, Timeline

__all__ = ["by_name", "fuse_elementwise", "fuse_updates", "remove_cuda_calls", "scale_kernels"]

# Kinds of host actions that may contain CUDA calls without an event of their own, such as allocations.
CALLING_KINDS = frozenset({"work", "launch", "run", "transform", "ops"})
# Passes of a fused optimizer over the bytes of all parameters. It reads and writes parameters and states, and reads
# gradients. Adam has two states, SGD with momentum has one.
ADAM_PASSES, MOMENTUM_PASSES, SGD_PASSES = 7, 5, 3
Matches = Callable[[DeviceOperation], bool]  # tells whether a change applies to a kernel


def by_name(matches_name: Callable[[str], bool]) -> Matches:
    """Return a function that selects the kernels whose known name `matches_name` accepts."""
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


def fuse_updates(matches: Matches) -> Change:
    """Replace the foreach kernels of an optimizer by one fused kernel.

    A foreach kernel handles a list of tensors; the fused kernel makes all passes of the foreach kernels at once. Memory
    limits all these kernels, so their times are proportional to the bytes that they read and write. All kernels of one
    name together pass over all parameters, usually once.
    """

    def change(timeline: Timeline) -> Timeline:
        updates = [operation for operation in timeline.operations if _is_match(operation, matches)]
        share = _fused_share(updates)
        operations = [
            replace(operation, seconds=operation.seconds * share, gap_seconds=operation.gap_seconds * share)
            if _is_match(operation, matches)
            else operation
            for operation in timeline.operations
        ]
        return timeline.with_parts(operations=operations)

    return change


def _fused_share(updates: Sequence[DeviceOperation]) -> float:
    """Return the ratio of the bytes of a fused update to those of these kernels.

    Return 1.0 if the names of the kernels do not show their bytes.
    """
    blocks: Counter[str] = Counter()
    for operation in updates:
        blocks[operation.name] += operation.blocks
    passes = sum(arrays_of_foreach(name) * count for name, count in blocks.items())
    if not passes:
        return 1.0
    has_two_states = any("PointwiseOp" in name for name in blocks)
    fused = ADAM_PASSES if has_two_states else MOMENTUM_PASSES if len(blocks) > 1 else SGD_PASSES
    return min(1.0, fused * median(blocks.values()) / passes)


def scale_kernels(matches: Matches, share: float) -> Change:
    """Multiply the time of matching kernels by `share`; 0.0 removes them."""

    def change(timeline: Timeline) -> Timeline:
        operations = [
            _resize(operation, operation.seconds * share) if _is_match(operation, matches) else operation
            for operation in timeline.operations
        ]
        return timeline.with_parts(operations=operations)

    return change


def remove_cuda_calls(seconds: float) -> Change:
    """Remove `seconds` per step of CUDA calls that queue no work.

    All actions that may contain such calls lose the same share of their time.
    """
    return remove_work(seconds, CALLING_KINDS)


def _find_sequences(timeline: Timeline, matches: Matches) -> Iterator[list[int]]:
    """Yield sequences of matching kernels that follow each other on a stream.

    A sequence has the indices of kernels of one step.
    """
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
