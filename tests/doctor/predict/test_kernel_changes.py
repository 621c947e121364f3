"""Fused, scaled and removed kernels, on timelines whose step times are known.

A run is a sequence of kernels on one stream that a compiler can fuse.
"""

import pytest
from tests.doctor.predict.timelines import steps

from forebay.doctor.predict.kernel_changes import by_name, fuse_elementwise, fuse_updates, scale_kernels
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, steady_step_seconds


def is_add(kernel):
    return kernel.name == "add"


def chain_of(*kernels, streams=(0,)):
    """Return steps of kernels, given as (name, seconds), with gaps of 0.1 s. The host needs no time."""

    def make(first):
        operations = [
            DeviceOperation(seconds, stream=streams[number % len(streams)], name=name, gap_seconds=0.1)
            for number, (name, seconds) in enumerate(kernels)
        ]
        queued = tuple(range(first, first + len(kernels)))
        return [HostAction(0.0, queued, kind="launch"), HostAction(0.0, ends_step=True)], operations

    return steps(make)


def seconds_with(change, *kernels):
    return steady_step_seconds(change(chain_of(*kernels)))


def test_a_fused_run_of_kernels_takes_as_long_as_its_longest():
    assert seconds_with(fuse_elementwise(is_add, times_longest=1.0), ("add", 2), ("add", 3), ("gemm", 4)) == (
        pytest.approx(3 + 4 + 2 * 0.1)
    )


def test_a_kernel_that_cannot_be_fused_ends_a_run():
    assert seconds_with(fuse_elementwise(is_add, times_longest=1.0), ("add", 2), ("gemm", 4), ("add", 3)) == (
        pytest.approx(2 + 4 + 3 + 3 * 0.1)
    )


def test_the_end_of_a_step_ends_a_run():
    assert seconds_with(fuse_elementwise(is_add, times_longest=1.0), ("add", 2)) == pytest.approx(2.1)


def test_a_fused_kernel_takes_no_longer_than_the_run_it_replaces():
    assert seconds_with(fuse_elementwise(is_add, times_longest=5.0), ("add", 2), ("add", 3)) == pytest.approx(5.1)


def test_a_run_contains_kernels_of_one_stream_only():
    change = fuse_elementwise(is_add, times_longest=1.0)
    timeline = change(chain_of(("add", 2), ("gemm", 4), ("add", 3), ("gemm", 1), streams=(0, 1)))
    assert [operation.seconds for operation in timeline.operations[:4]] == pytest.approx([2 * 0.6, 4, 3 * 0.6, 1])


def test_only_matching_kernels_are_scaled():
    assert seconds_with(scale_kernels(is_add, 0.5), ("add", 2), ("gemm", 4)) == pytest.approx(1 + 4 + 0.2)


def test_a_removed_kernel_leaves_no_gap():
    assert seconds_with(scale_kernels(is_add, 0.0), ("add", 2), ("gemm", 4)) == pytest.approx(4.1)


def test_copies_and_kernels_without_a_name_are_not_changed():
    def make(first):
        operations = [DeviceOperation(2.0, engine="host to device", name="add"), DeviceOperation(3.0)]
        return [HostAction(0.0, (first, first + 1), kind="launch", ends_step=True)], operations

    before = steps(make)
    assert scale_kernels(by_name(lambda name: True), 0.0)(before) == before
    assert fuse_elementwise(by_name(lambda name: True), times_longest=0.5)(before) == before


def foreach(functor, arrays):
    """Return the name of a foreach kernel that reads `arrays` arrays and writes one."""
    metadata = f"multi_tensor_apply_kernelINS1_18TensorListMetadataILi{arrays}EEENS1_"
    return f"{metadata}{functor}FunctorIfLi{arrays}ELi{arrays}ELi0E"


def fused_share(*kernels, blocks=64):
    """Return the share of the time that remains after fusion. Kernels, as (functor, arrays), take one second each."""
    operations = tuple(
        DeviceOperation(1.0, name=foreach(functor, arrays), blocks=blocks) for functor, arrays in kernels
    )
    timeline = Timeline((HostAction(0.0, tuple(range(len(kernels))), ends_step=True),), operations)
    fused = fuse_updates(by_name(lambda name: "Functor" in name))(timeline)
    return sum(operation.seconds for operation in fused.operations) / len(kernels)


def test_a_fused_adam_moves_seven_arrays():
    # decay, first moment, second moment (twice), root, correction, epsilon, step: 2 + 3 + 2 + 4 + 2 + 2 + 2 + 4 arrays
    kernels = [("Mul", 1), ("Lerp", 2), ("Mul", 1), ("PointwiseOp", 3), ("Sqrt", 1), ("Div", 1), ("Add", 1)]
    assert fused_share(*kernels, ("PointwiseOpList", 3)) == pytest.approx(7 / 21)


def test_a_fused_momentum_moves_five_arrays():
    assert fused_share(("Mul", 1), ("Add", 2), ("AddAlpha", 2)) == pytest.approx(5 / 8)


def test_an_update_of_one_pass_gains_nothing():
    assert fused_share(("AddAlpha", 2)) == 1.0


def test_kernels_of_unknown_size_gain_nothing():
    assert fused_share(("Mul", 1), ("PointwiseOp", 3), blocks=0) == 1.0
