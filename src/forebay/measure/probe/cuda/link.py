"""The link: large copies each way and both ways, page-locked or not, and what locking costs."""

import ctypes
import time
from collections.abc import Callable

from forebay.core.nvml import Nvml
from forebay.measure.probe.cuda.rig import Rig, locked
from forebay.measure.probe.timing import median, rate

__all__ = [
    "both_ways",
    "device_to_host",
    "host_to_device",
    "launch",
    "launch_and_wait",
    "link_under_load",
    "page_lock",
    "readback",
    "small_copy",
]


def host_to_device(rig: Rig) -> float:
    """Bytes a second from the source as it is, locked or not."""

    def move() -> None:
        rig.upload()
        rig.wait()

    return median(lambda: rate(len(rig.buffers.source), move))


def device_to_host(rig: Rig) -> float:
    """Bytes a second into the target as it is, locked or not."""

    def move() -> None:
        rig.download(rig.stream)
        rig.wait()

    return median(lambda: rate(len(rig.buffers.source), move))


def both_ways(rig: Rig) -> float:
    """Bytes a second of both directions together; both sides must be locked, or one would wait for the other."""

    def move() -> None:
        rig.upload()
        rig.download(rig.other_stream)
        rig.wait()

    return median(lambda: rate(2 * len(rig.buffers.source), move))


def page_lock(rig: Rig) -> float:
    """Bytes a second of locking memory that is in place; unlocking is not counted."""

    def sample() -> float:
        began = time.perf_counter()
        with locked(rig, rig.buffers.source):
            return len(rig.buffers.source) / (time.perf_counter() - began)

    return median(sample)


def link_under_load(rig: Rig) -> tuple[int | None, int | None]:
    """PCIe generation and width while copies run: an idle link may have gone down."""
    domain, bus, device = (rig.device.attribute(f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE"))
    with Nvml() as nvml:
        rig.upload()
        found = nvml.link(f"{domain:08x}:{bus:02x}:{device:02x}.0")
        rig.wait()
    return found


SMALL_NBYTES, SCALAR_NBYTES = 4096, 4
TIMES = 200


class _Nothing(ctypes.Structure):
    """As in empty.cu."""

    _fields_ = (("unused", ctypes.c_int),)


def small_copy(rig: Rig) -> float:
    """Seconds of a 4 KiB copy to the device, queued one after the other."""
    return _seconds_each(lambda: rig.stream.upload(rig.inbound, rig.source, SMALL_NBYTES), finish=rig.stream.wait)


def readback(rig: Rig) -> float:
    """Seconds until a number is back from the device, as when a loss is looked at."""

    def read() -> None:
        rig.stream.download(rig.target, rig.outbound, SCALAR_NBYTES)
        rig.stream.wait()

    return _seconds_each(read)


def launch(rig: Rig) -> float:
    """Seconds of an empty kernel, queued one after the other."""
    return _seconds_each(_launcher(rig), finish=rig.stream.wait)


def launch_and_wait(rig: Rig) -> float:
    """Seconds until an empty kernel is done."""
    start = _launcher(rig)

    def run() -> None:
        start()
        rig.stream.wait()

    return _seconds_each(run)


def _launcher(rig: Rig) -> Callable[[], None]:
    kernel, job = rig.device.kernel("do_nothing", source="empty.cu"), _Nothing(0)
    return lambda: kernel.launch(rig.stream, job, blocks=1, threads=32)


def _seconds_each(do: Callable[[], None], *, finish: Callable[[], None] = lambda: None) -> float:
    def sample() -> float:
        began = time.perf_counter()
        for _ in range(TIMES):
            do()
        finish()
        return (time.perf_counter() - began) / TIMES

    return median(sample)
