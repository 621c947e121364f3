"""Small things: what a copy of a few bytes or an empty kernel costs, as this library issues them."""

import ctypes
import time
from collections.abc import Callable

from forebay.probing.cuda.rig import Rig
from forebay.probing.meter import median

__all__ = ["launch", "launch_and_wait", "readback", "small_copy"]

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
