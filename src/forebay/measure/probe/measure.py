"""Measurement of all ceilings of this machine, with a message for each missing ceiling."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from forebay.core.ceilings import DeviceCeilings, DiskCeilings, HostCeilings, Probe
from forebay.core.hardware import Hardware, are_gpus_hidden, is_cuda_installed
from forebay.core.nvml import PACKAGE, Nvml, has_binding
from forebay.measure.probe.disk import measure_disk
from forebay.measure.probe.host import measure_host
from forebay.measure.probe.timing import Buffers

__all__ = ["MeasuredCeilings", "measure_ceilings", "measure_machine"]

ReportProgress: TypeAlias = Callable[[str], None]
# Folders to measure if the temporary folder is in memory. Files in /var/tmp survive a restart, so it is on a disk.
DISK_FOLDERS = (Path("/var/tmp"),)  # nosec B108  # files there get random names


@dataclass(frozen=True, slots=True)
class MeasuredCeilings:
    """The ceilings, and a message about each ceiling that could not be measured."""

    host: HostCeilings
    disk: DiskCeilings | None
    device: DeviceCeilings | None
    missing: tuple[str, ...]


def measure_machine(*, report: ReportProgress = lambda line: None) -> Probe:
    """Measure all ceilings of this machine, which should run nothing else.

    Call `report` with a text before each part of the measurement.
    """
    start, hardware = time.perf_counter(), Hardware.detect()
    measured = measure_ceilings(hardware, report)
    return Probe(
        hardware=hardware,
        measured_at=datetime.now(UTC).replace(microsecond=0),
        seconds=time.perf_counter() - start,
        host=measured.host,
        disk=measured.disk,
        device=measured.device,
        missing=measured.missing,
    )


def measure_ceilings(hardware: Hardware, report: ReportProgress) -> MeasuredCeilings:
    """Measure all ceilings in a few seconds.

    This takes at most 512 MiB of host memory and 512 MiB of device memory.
    """
    buffers = Buffers.for_memory(hardware.memory_nbytes)
    # The first call of gettempdir() writes a test file, and an interrupt would leave this file behind. So make the call
    # before the long measurements, which users interrupt.
    tempfile.gettempdir()
    report("measuring memory")
    host = measure_host(buffers, hardware.cores)
    report("measuring the disk")
    disk, missing_disk = _measure_disk(buffers)
    device, missing_device = _measure_device(buffers, report)
    return MeasuredCeilings(host, disk, device, (*missing_disk, *missing_device))


def _measure_disk(buffers: Buffers) -> tuple[DiskCeilings | None, list[str]]:
    folders = (Path(tempfile.gettempdir()), *DISK_FOLDERS)
    try:
        return measure_disk([folder for folder in folders if folder.is_dir()], buffers.target)
    except OSError as error:
        return None, [f"disk: the test file could not be written or read: {error}."]


def _measure_device(buffers: Buffers, report: ReportProgress) -> tuple[DeviceCeilings | None, list[str]]:
    if are_gpus_hidden():
        return None, ["GPU: CUDA_VISIBLE_DEVICES hides all GPUs. Unset this variable."]
    if not is_cuda_installed():
        return None, [_missing_cuda_message()]
    report("measuring the GPU")
    try:  # cuda.measure imports cuda-bindings, whose installation may be broken
        from forebay.measure.probe.cuda.measure import measure_device

        return measure_device(buffers)
    except (ImportError, OSError, RuntimeError) as error:
        return None, [f"GPU: {str(error).rstrip('.')}."]


def _missing_cuda_message() -> str:
    """Return a message that names the missing package, or says that no GPU was found."""
    with Nvml() as nvml:
        names = nvml.gpu_names
    if not names and not has_binding():
        return f"GPU: none was found. To find one, Forebay needs {PACKAGE}. Run pip install 'forebay[cu13]' (or cu12)."
    if not names:
        return "GPU: none was found."
    return f"GPU: measuring {names[0]} needs cuda-bindings. Run pip install 'forebay[cu13]' (or cu12)."
