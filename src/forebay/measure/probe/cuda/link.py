"""Speed and latency of the link between host and GPU.

A `Rig` has the streams and the buffers of the measurements. `rig.buffers.source` and `rig.buffers.target` are its host
buffers.
"""

import ctypes
import time
from collections.abc import Callable

from forebay.core.nvml import Nvml
from forebay.measure.probe.cuda.rig import Rig, page_locked
from forebay.measure.probe.timing import measure_median, measure_rate

__all__ = [
    "measure_both_ways",
    "measure_download",
    "measure_launch",
    "measure_launch_and_wait",
    "measure_page_lock",
    "measure_readback",
    "measure_small_copy",
    "measure_upload",
    "read_pcie_link",
]

SMALL_NBYTES = 4096  # size of a small copy to the device
SCALAR_NBYTES = 4  # size of a float32 loss that a script reads back
REPEATS = 200  # operations per sample, because a single one takes only microseconds


def measure_upload(rig: Rig) -> float:
    """Return bytes per second of copies to the device.

    The copies read pageable memory unless the caller has page-locked `rig.buffers.source`.
    """

    def move() -> None:
        rig.upload()
        rig.wait()

    return measure_median(lambda: measure_rate(len(rig.buffers.source), move))


def measure_download(rig: Rig) -> float:
    """Return bytes per second of copies to the host.

    The copies write to pageable memory unless the caller has page-locked `rig.buffers.target`.
    """

    def move() -> None:
        rig.download(rig.stream)
        rig.wait()

    return measure_median(lambda: measure_rate(len(rig.buffers.source), move))


def measure_both_ways(rig: Rig) -> float:
    """Return the total bytes per second of copies in both directions at the same time.

    Source and target must be page-locked; otherwise the copies run one after the other.
    """

    def move() -> None:
        rig.upload()
        rig.download(rig.other_stream)
        rig.wait()

    return measure_median(lambda: measure_rate(2 * len(rig.buffers.source), move))


def measure_page_lock(rig: Rig) -> float:
    """Return bytes per second of page-locking, without the time to unlock."""

    def sample() -> float:
        start = time.perf_counter()
        with page_locked(rig, rig.buffers.source):
            return len(rig.buffers.source) / (time.perf_counter() - start)

    return measure_median(sample)


def read_pcie_link(rig: Rig) -> tuple[int | None, int | None]:
    """Return the PCIe generation and number of lanes; None for values that NVML omits.

    Read both during copies, because an idle link may reduce its generation or its number of lanes.
    """
    domain, bus, device = (rig.device.attribute(f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE"))
    with Nvml() as nvml:
        rig.upload()
        generation_and_width = nvml.pcie_link(f"{domain:08x}:{bus:02x}:{device:02x}.0")
        rig.wait()
    return generation_and_width


def measure_small_copy(rig: Rig) -> float:
    """Return seconds per 4 KiB copy to the device; many are queued without a wait."""
    return _seconds_per_call(lambda: rig.stream.upload(rig.inbound, rig.source, SMALL_NBYTES), finish=rig.stream.wait)


def measure_readback(rig: Rig) -> float:
    """Return seconds to read 4 bytes back, as when a script reads a loss."""

    def read() -> None:
        rig.stream.download(rig.target, rig.outbound, SCALAR_NBYTES)
        rig.stream.wait()

    return _seconds_per_call(read)


def measure_launch(rig: Rig) -> float:
    """Return seconds per launch of an empty kernel; many are queued without a wait."""
    return _seconds_per_call(_make_launch(rig), finish=rig.stream.wait)


def measure_launch_and_wait(rig: Rig) -> float:
    """Return seconds to launch an empty kernel and wait for it."""
    launch = _make_launch(rig)

    def run() -> None:
        launch()
        rig.stream.wait()

    return _seconds_per_call(run)


class _EmptyKernelJob(ctypes.Structure):
    """The argument of the kernel `do_nothing` in empty.cu."""

    _fields_ = (("unused", ctypes.c_int),)


def _make_launch(rig: Rig) -> Callable[[], None]:
    kernel, job = rig.device.kernel("do_nothing", source="empty.cu"), _EmptyKernelJob(0)
    return lambda: kernel.launch(rig.stream, job, blocks=1, threads=32)


def _seconds_per_call(operation: Callable[[], None], *, finish: Callable[[], None] = lambda: None) -> float:
    """Return the seconds per call of `operation`, including one call of `finish` after all calls."""

    def sample() -> float:
        start = time.perf_counter()
        for _ in range(REPEATS):
            operation()
        finish()
        return (time.perf_counter() - start) / REPEATS

    return measure_median(sample)
