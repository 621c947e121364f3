"""All figures of the first GPU; parts that fail are left out and told, the rest is kept."""

from collections.abc import Callable
from typing import TypeVar

from forebay.core.ceilings import DeviceFigures
from forebay.engines.cuda.driver import Device
from forebay.measure.probe.cuda import link, rows
from forebay.measure.probe.cuda.rig import Rig, locked, open_rig
from forebay.measure.probe.timing import Buffers

__all__ = ["measure_device"]

T = TypeVar("T")


def measure_device(buffers: Buffers) -> tuple[DeviceFigures, list[str]]:
    """Of the GPU that frameworks call the first; and what could not be measured."""
    device = Device(0)
    free_nbytes, total_nbytes = device.memory()  # before any of it is taken here
    missing: list[str] = []
    with open_rig(device, buffers) as rig:
        # Locking makes pageable memory something else, so those figures come first.
        pageable_up, pageable_down, lock = link.host_to_device(rig), link.device_to_host(rig), link.page_lock(rig)
        with locked(rig, buffers.source, buffers.target):
            generation, width = link.link_under_load(rig)
            figures = DeviceFigures(
                name=device.name,
                free_nbytes=free_nbytes,
                total_nbytes=total_nbytes,
                pcie_generation=generation,
                pcie_width=width,
                host_to_device_bytes_per_second=link.host_to_device(rig),
                device_to_host_bytes_per_second=link.device_to_host(rig),
                both_ways_bytes_per_second=link.both_ways(rig),
                pageable_host_to_device_bytes_per_second=pageable_up,
                pageable_device_to_host_bytes_per_second=pageable_down,
                page_lock_bytes_per_second=lock,
                small_copy_seconds=link.small_copy(rig),
                readback_seconds=link.readback(rig),
                launch_seconds=_try("launches", link.launch, rig, missing),
                launch_and_wait_seconds=_try("launches", link.launch_and_wait, rig, missing),
                pull=_try("rows read by the GPU", rows.pull, rig, missing),
                batched_copy=_try("rows by batched copies", rows.batched_copy, rig, missing),
            )
    return figures, list(dict.fromkeys(missing))


def _try(what: str, measure: Callable[[Rig], T], rig: Rig, missing: list[str]) -> T | None:
    """What needs the run-time compiler or a recent driver: not every machine has them."""
    try:
        return measure(rig)
    except (AttributeError, OSError, RuntimeError) as error:
        missing.append(f"{what}: {str(error).rstrip('.')}.")
        return None
