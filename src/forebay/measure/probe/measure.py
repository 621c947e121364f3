"""Everything there is to measure here, one thing after the other; what is not there is told, with the way to get it."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from forebay.core.ceilings import DeviceFigures, DiskFigures, HostFigures, Probe
from forebay.core.hardware import Hardware, cuda_installed, gpus_hidden
from forebay.core.nvml import Nvml
from forebay.measure.probe.disk import measure_disk
from forebay.measure.probe.host import measure_host
from forebay.measure.probe.timing import Buffers

__all__ = ["Figures", "Say", "measure_here", "measure_machine"]

Say = Callable[[str], None]
ON_DISK = (Path("/var/tmp"),)  # outlives a restart, so it is no memory, as /tmp often is


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, and what was not."""

    host: HostFigures
    disk: DiskFigures | None
    device: DeviceFigures | None
    missing: tuple[str, ...]


def measure_machine(*, say: Say = lambda line: None) -> Probe:
    """Measure this machine. Nothing else should run meanwhile. `say` receives a line for each measurement."""
    began, hardware = time.perf_counter(), Hardware.here()
    found = measure_here(hardware, say)
    return Probe(
        hardware=hardware,
        measured_at=datetime.now(UTC).replace(microsecond=0),
        seconds=time.perf_counter() - began,
        host=found.host,
        disk=found.disk,
        device=found.device,
        missing=found.missing,
    )


def measure_here(hardware: Hardware, say: Say) -> Figures:
    """In a few seconds, with at most 512 MiB of memory, and as much on the GPU."""
    buffers = Buffers.of(hardware.memory_nbytes)
    tempfile.gettempdir()  # tries folders out with a file, once, which an interrupt later on could leave there
    say("measuring memory ...")
    host = measure_host(buffers, hardware.cores)
    say("measuring the disk ...")
    disk, no_disk = _disk(buffers)
    device, no_device = _device(buffers, say)
    return Figures(host, disk, device, (*no_disk, *no_device))


def _disk(buffers: Buffers) -> tuple[DiskFigures | None, list[str]]:
    folders = (Path(tempfile.gettempdir()), *ON_DISK)
    try:
        return measure_disk([folder for folder in folders if folder.is_dir()], buffers.target)
    except OSError as error:
        return None, [f"disk: no file could be written: {error}."]


def _device(buffers: Buffers, say: Say) -> tuple[DeviceFigures | None, list[str]]:
    if gpus_hidden():
        return None, ["GPU: CUDA_VISIBLE_DEVICES hides it. Unset it."]
    if not cuda_installed():
        return None, [_why_not_cuda()]
    say("measuring the GPU ...")
    # Imported here because it needs cuda-bindings, which may be broken in more ways than not being installed.
    try:
        from forebay.measure.probe.cuda.measure import measure_device

        return measure_device(buffers)
    except (ImportError, OSError, RuntimeError) as error:
        return None, [f"GPU: {str(error).rstrip('.')}."]


def _why_not_cuda() -> str:
    with Nvml() as nvml:
        names = nvml.names
    if not names:
        return "GPU: none was found."
    return f"GPU: {names[0]} can be measured only with cuda-bindings: pip install 'forebay[cu13]' (or cu12)."
