"""The rule for work so small that a CPU core is faster than the device.

A small kernel takes a few microseconds, and so does its launch. In this time, a CPU core processes several thousand
numbers.
"""

from collections.abc import Iterator

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import count_threads, seconds_per_step
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import step_framework
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.model.device_records import RecordKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import CPU_CALL_SECONDS, CPU_NUMBER_SECONDS, compute_on_cpu
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MAX_KERNEL_NS = 6_000  # nanoseconds; a longer kernel is not small
MAX_THREADS = 8_192  # per kernel; a thread processes about one number
MAX_BUSY_SHARE = 0.5  # share of the time; a device that computes longer has enough work
MAX_NBYTES = 256 << 10  # bytes that the copies of a step transfer; a step with more is not small work
SMALL_SHARE = 0.95  # share of the kernels that must be small


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if even a slow core would be faster than the measured step."""
    device_view = view.device
    if device_view is None or not view.step_seconds or not _is_small(device_view) or _is_distributed(view):
        return
    slow_core_seconds = (  # the second value of each constant is that of a slow core
        device_view.kernels_per_step * CPU_CALL_SECONDS[1] + _numbers_per_step(device_view) * CPU_NUMBER_SECONDS[1]
    )
    if slow_core_seconds < view.step_seconds:
        yield _finding(view, device_view)


def _is_distributed(view: CaptureView) -> bool:
    """Whether the script uses process groups of PyTorch. The backend NCCL of such a group works only with GPUs."""
    code = script_code(view, view.line(view.steps.anchor[2])) if view.steps else None
    return code is not None and bool(code.calls("init_process_group", "DistributedDataParallel", "DDP"))


def _is_small(device_view: DeviceView) -> bool:
    """Whether the device copies few bytes, runs nearly only small kernels, and often idles.

    A CUDA graph is one launch of unknown work, so a capture with a graph never counts.
    """
    kernels = device_view.kernels
    has_graph = (kernels["kind"] == RecordKind.GRAPH_TRACE).any()
    if not len(kernels) or has_graph or device_view.busy_share > MAX_BUSY_SHARE:
        return False
    durations = kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)
    is_small = (durations <= MAX_KERNEL_NS) & (count_threads(kernels) <= MAX_THREADS)
    return bool(is_small.mean() >= SMALL_SHARE) and device_view.copied_nbytes <= MAX_NBYTES


def _numbers_per_step(device_view: DeviceView) -> float:
    """Return how many numbers the kernels of a step process, about one per thread."""
    return float(count_threads(device_view.kernels).sum()) / device_view.steps_done


def _finding(view: CaptureView, device_view: DeviceView) -> Finding:
    count, numbers = device_view.kernels_per_step, _numbers_per_step(device_view) / device_view.kernels_per_step
    code = _CODE.get(step_framework(view), _CODE["torch"])
    basis = (
        f"a CPU core computes {count:.0f} operations of {numbers:,.0f} numbers, without copies and waits; "
        "the framework still prepares each call, and input and other work of the script remain"
    )
    computing = seconds_per_step(device_view, device_view.computing_intervals)
    return Finding(
        rule="faster_on_cpu",
        title=f"A CPU core would compute these {count:.0f} kernels of {numbers:,.0f} numbers in less time than a step",
        line=None,
        seconds=max(0.0, min(view.step_seconds, view.step_seconds - computing)),
        cures=(Cure("compute this on the CPU", code, basis, compute_on_cpu(view, count, count * numbers)),),
        evidence=(
            f"The device computes for {format_seconds(computing)} per step, "
            f"{format_percent(computing / device_view.seconds)} of the time.",
            f"The device becomes faster at about {_break_even(view, count, numbers)} "
            "numbers per operation, which a larger batch may reach.",
        ),
    )


def _break_even(view: CaptureView, count: float, numbers: float) -> str:
    """Return how large an operation must be so that the device is faster.

    The result is text: a range of numbers per operation, for slow to fast CPU cores. A step has `count` operations of
    `numbers` numbers.
    """
    operation_seconds = view.step_seconds / count
    sizes = [
        max(numbers, (operation_seconds - per_call) / per_number)
        for per_call, per_number in zip(CPU_CALL_SECONDS, CPU_NUMBER_SECONDS, strict=True)
    ]
    return f"{_format_rounded(sizes[1])} to {_format_rounded(sizes[0])}"


def _format_rounded(number: float) -> str:
    """Format a number with one significant digit, because it is an estimate."""
    digits = len(str(int(number))) - 1
    return f"{round(number, -digits):,.0f}"


_CODE = {
    "torch": 'device = torch.device("cpu")',
    "tensorflow": 'with tf.device("/CPU:0"): ...   # or CUDA_VISIBLE_DEVICES="" before the command',
    "jax": 'jax.config.update("jax_default_device", jax.devices("cpu")[0])   # or JAX_PLATFORMS=cpu',
    "cupy": "import numpy as cp   # replaces cupy",
}
