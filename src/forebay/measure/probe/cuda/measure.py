"""Measurement of all ceilings of the first GPU.

A failure of an optional measurement adds a message and does not stop the other measurements.
"""

from collections.abc import Callable
from typing import TypeVar

from forebay.core.ceilings import DeviceCeilings
from forebay.engines.cuda.driver import Device
from forebay.measure.probe.cuda import link, rows
from forebay.measure.probe.cuda.rig import Rig, open_rig, page_locked
from forebay.measure.probe.timing import Buffers

__all__ = ["measure_device"]

T = TypeVar("T")


def measure_device(buffers: Buffers) -> tuple[DeviceCeilings, list[str]]:
    """Measure GPU 0. Return its ceilings, and a message for each missing ceiling."""
    device = Device(0)
    free_nbytes, total_nbytes = device.memory()  # read before this function allocates device memory
    missing: list[str] = []
    with open_rig(device, buffers) as rig:
        # Measure pageable copies first, because the next measurements page-lock the same memory.
        pageable_upload, pageable_download = link.measure_upload(rig), link.measure_download(rig)
        page_lock = link.measure_page_lock(rig)
        with page_locked(rig, buffers.source, buffers.target):
            generation, width = link.read_pcie_link(rig)
            ceilings = DeviceCeilings(
                name=device.name,
                free_nbytes=free_nbytes,
                total_nbytes=total_nbytes,
                pcie_generation=generation,
                pcie_width=width,
                host_to_device_bytes_per_second=link.measure_upload(rig),
                device_to_host_bytes_per_second=link.measure_download(rig),
                both_ways_bytes_per_second=link.measure_both_ways(rig),
                pageable_host_to_device_bytes_per_second=pageable_upload,
                pageable_device_to_host_bytes_per_second=pageable_download,
                page_lock_bytes_per_second=page_lock,
                small_copy_seconds=link.measure_small_copy(rig),
                readback_seconds=link.measure_readback(rig),
                launch_seconds=_measure_optional("launches", link.measure_launch, rig, missing),
                launch_and_wait_seconds=_measure_optional("launches", link.measure_launch_and_wait, rig, missing),
                pull=_measure_optional("rows read by the GPU", rows.measure_pull, rig, missing),
                batched_copy=_measure_optional("rows by batched copies", rows.measure_batched_copy, rig, missing),
            )
    return ceilings, list(dict.fromkeys(missing))


def _measure_optional(subject: str, measure: Callable[[Rig], T], rig: Rig, missing: list[str]) -> T | None:
    """Return the result of `measure`, or add a message to `missing` and return None.

    Optional measurements need the run-time compiler or a recent driver, which some machines do not have.
    """
    try:
        return measure(rig)
    except (AttributeError, OSError, RuntimeError) as error:
        missing.append(f"{subject}: {str(error).rstrip('.')}.")
        return None
