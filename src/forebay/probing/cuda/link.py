"""The link: large copies each way and both ways, page-locked or not, and what locking costs."""

import time

from forebay.probing.cuda.rig import Rig, locked
from forebay.probing.meter import median, rate
from forebay.probing.nvml import Nvml

__all__ = ["both_ways", "device_to_host", "host_to_device", "link_under_load", "page_lock"]


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
