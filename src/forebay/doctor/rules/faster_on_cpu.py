"""Work so small that a CPU core is faster than launching it on the device.

A small kernel takes a few microseconds, and so does its launch. A CPU core processes some thousand numbers in that
time.
"""

from collections.abc import Iterator

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import count_threads, seconds_per_step
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.device_records import RecordKind
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

LONGEST_NS = 6_000  # nanoseconds; a kernel this short does very little
MOST_THREADS = 8_192  # per kernel; a thread processes about one number
MOST_BUSY = 0.5  # of the time; a busier device has enough work
MOST_NBYTES = 256 << 10  # transferred per step
SMALL_SHARE = 0.95  # of the kernels must be small
# Time on the host per operation and per number: on a fast core, and on a slow one.
CALL_SECONDS = 1e-6, 5e-6
NUMBER_SECONDS = 0.5e-9, 4e-9


def examine(view: CaptureView) -> Iterator[Finding]:
    device_view = view.device
    if device_view is None or not view.step_seconds or not _is_small(device_view):
        return
    best, worst = (
        device_view.kernels_per_step * call + _numbers(device_view) * number
        for call, number in zip(CALL_SECONDS, NUMBER_SECONDS, strict=True)
    )
    if worst < view.step_seconds:
        yield _finding(view, device_view, view.step_seconds - worst, view.step_seconds - best)


def _is_small(device_view: DeviceView) -> bool:
    """Whether nearly all kernels are small. A graph is one launch of unknown work, so it never counts."""
    kernels = device_view.kernels
    if not len(kernels) or (kernels["kind"] == RecordKind.GRAPH_TRACE).any() or device_view.busy_share > MOST_BUSY:
        return False
    lasted = kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)
    small = (lasted <= LONGEST_NS) & (count_threads(kernels) <= MOST_THREADS)
    return bool(small.mean() >= SMALL_SHARE) and sum(copies.nbytes for copies in device_view.copies) <= MOST_NBYTES


def _numbers(device_view: DeviceView) -> float:
    """Return the numbers processed per step, about one per thread."""
    return float(count_threads(device_view.kernels).sum()) / device_view.steps_done


def _finding(view: CaptureView, device_view: DeviceView, low: float, high: float) -> Finding:
    count, each = device_view.kernels_per_step, _numbers(device_view) / device_view.kernels_per_step
    api = next((site.api for site in view.sites_of(EventKind.RUN, EventKind.OPS, EventKind.STEP)), "")
    code = _CODE.get(framework_of(view, api), _CODE["torch"])
    basis = f"{count:.0f} operations of {each:,.0f} numbers, computed by a slow and by a fast CPU core"
    busy = seconds_per_step(device_view, device_view.computing)
    return Finding(
        rule="faster_on_cpu",
        title=f"A CPU core would compute these {count:.0f} kernels of {each:,.0f} numbers before their launch ends",
        line=None,
        seconds=max(0.0, min(view.step_seconds, view.step_seconds - busy)),
        cures=(Cure("compute this on the CPU", code, low, high, basis),),
        evidence=(
            f"The device computes for {format_seconds(busy)} per step, "
            f"{format_percent(busy / device_view.seconds)} of the time.",
            f"The device becomes faster at about {_break_even(view, count, each)} "
            "numbers per operation, which a larger batch may reach.",
        ),
    )


def _break_even(view: CaptureView, count: float, each: float) -> str:
    """Return the operation size at which the device becomes faster than a slow and a fast core."""
    now = view.step_seconds / count
    sizes = [max(each, (now - call) / number) for call, number in zip(CALL_SECONDS, NUMBER_SECONDS, strict=True)]
    return f"{_round(sizes[1])} to {_round(sizes[0])}"


def _round(number: float) -> str:
    """Round to one digit, since the speed of a core is an estimate."""
    digits = len(str(int(number))) - 1
    return f"{round(number, -digits):,.0f}"


_CODE = {
    "torch": 'device = torch.device("cpu")',
    "tensorflow": 'with tf.device("/CPU:0"): ...   # or CUDA_VISIBLE_DEVICES="" before the command',
    "jax": 'jax.config.update("jax_default_device", jax.devices("cpu")[0])   # or JAX_PLATFORMS=cpu',
    "cupy": "import numpy as cp   # replaces cupy",
}
