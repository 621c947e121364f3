"""Work so small that starting it on the device takes longer than doing it on the host; with the size where that turns.

A kernel is over in a few microseconds, its launch takes as long again, and a core of the host does some thousand
numbers in that time.
"""

from collections.abc import Iterator

import numpy as np

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.device_time import seconds_of, threads_of
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.device_records import RecordKind
from forebay.doctor.model.events import Kind
from forebay.doctor.model.formatting import percent, seconds
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

LONGEST_NS = 6_000  # of a kernel that does next to nothing
MOST_THREADS = 8_192  # of a kernel: about as many numbers
MOST_BUSY = 0.5  # of the time: else the device has something to do
MOST_NBYTES = 256 << 10  # that cross in a step
NEARLY_ALL = 0.95  # of the kernels
# What an operation takes on the host, by itself and for each number: on a fast core, and on a slow one.
CALL_SECONDS = 1e-6, 5e-6
NUMBER_SECONDS = 0.5e-9, 4e-9


def examine(case: Case) -> Iterator[Finding]:
    view = case.device
    if view is None or not case.step_seconds or not _is_small(view):
        return
    best, worst = (
        view.kernels_per_step * call + _numbers(view) * number
        for call, number in zip(CALL_SECONDS, NUMBER_SECONDS, strict=True)
    )
    if worst < case.step_seconds:
        yield _finding(case, view, case.step_seconds - worst, case.step_seconds - best)


def _is_small(view: DeviceView) -> bool:
    """A graph is one launch, whatever it holds: nothing is said of it."""
    kernels = view.kernels
    if not len(kernels) or (kernels["kind"] == RecordKind.GRAPH_TRACE).any() or view.busy_share > MOST_BUSY:
        return False
    lasted = kernels["end"].astype(np.int64) - kernels["start"].astype(np.int64)
    small = (lasted <= LONGEST_NS) & (threads_of(kernels) <= MOST_THREADS)
    return bool(small.mean() >= NEARLY_ALL) and sum(copies.nbytes for copies in view.copies) <= MOST_NBYTES


def _numbers(view: DeviceView) -> float:
    """Of a step, by threads: about one for each."""
    return float(threads_of(view.kernels).sum()) / view.done


def _finding(case: Case, view: DeviceView, low: float, high: float) -> Finding:
    count, each = view.kernels_per_step, _numbers(view) / view.kernels_per_step
    api = next((site.api for site in case.of(Kind.RUN, Kind.OPS, Kind.STEP)), "")
    code = _CODE.get(framework_of(case, api), _CODE["torch"])
    how = f"{count:.0f} operations of {each:,.0f} numbers by a core of the host, a slow one and a fast one"
    busy = seconds_of(view, view.computing)
    return Finding(
        rule="faster_on_cpu",
        title=f"{count:.0f} kernels of {each:,.0f} numbers: the host would be done before they are launched",
        line=None,
        seconds=max(0.0, min(case.step_seconds, case.step_seconds - busy)),
        cures=(Cure("compute this on the CPU", code, low, high, how),),
        evidence=(
            f"the device computes {seconds(busy)} of a step, {percent(busy / view.seconds)} of the time",
            f"it turns at about {_turns(case, count, each)} numbers an operation, which a larger batch may have",
        ),
    )


def _turns(case: Case, count: float, each: float) -> str:
    """How many numbers the host does in the time an operation takes now, on a slow core and on a fast one."""
    now = case.step_seconds / count
    sizes = [max(each, (now - call) / number) for call, number in zip(CALL_SECONDS, NUMBER_SECONDS, strict=True)]
    return f"{_round(sizes[1])} to {_round(sizes[0])}"


def _round(number: float) -> str:
    """To one digit: it is a guess at how fast a core is."""
    digits = len(str(int(number))) - 1
    return f"{round(number, -digits):,.0f}"


_CODE = {
    "torch": 'device = torch.device("cpu")',
    "tensorflow": 'with tf.device("/CPU:0"): ...   # or CUDA_VISIBLE_DEVICES="" in front of the command',
    "jax": 'jax.config.update("jax_default_device", jax.devices("cpu")[0])   # or JAX_PLATFORMS=cpu',
    "cupy": "import numpy as cp   # in place of cupy",
}
