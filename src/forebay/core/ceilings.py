"""What a probe measured, as values; between measured points they are read off by interpolation.

A row costs a fixed time and a time for each of its bytes, so it is the time of a row that is interpolated, not its
speed: half way between rows of 64 and 400 bytes, a mean of the two speeds would be far too much.
"""

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.hardware import Hardware
from forebay.core.json_values import cache_folder, from_json, to_json, write_atomically

__all__ = ["CopySpeed", "DeviceFigures", "DiskFigures", "HostFigures", "HostGather", "Probe", "RowSpeed", "RowSpeeds"]


@dataclass(frozen=True, slots=True)
class RowSpeed:
    """Rows of this many bytes, in any order."""

    row_nbytes: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class RowSpeeds:
    """How fast shuffled rows move, by the bytes of a row.

    >>> speeds = RowSpeeds((RowSpeed(100, 1e9), RowSpeed(1000, 5e9)))
    >>> [round(speeds.bytes_per_second(row_nbytes) / 1e9, 2) for row_nbytes in (50, 550, 5000)]
    [0.5, 3.67, 5.0]
    """

    points: tuple[RowSpeed, ...]

    def __post_init__(self) -> None:
        sizes = [point.row_nbytes for point in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"speeds must be given by rising row_nbytes, not {sizes}.")

    def bytes_per_second(self, row_nbytes: int) -> float:
        """Smaller rows take the time of the smallest that was measured; larger ones have the speed of the largest."""
        if row_nbytes >= self.points[-1].row_nbytes:
            return self.points[-1].bytes_per_second
        sizes = [point.row_nbytes for point in self.points]
        seconds = [point.row_nbytes / point.bytes_per_second for point in self.points]
        return row_nbytes / float(np.interp(row_nbytes, sizes, seconds))


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """Plain copies in host memory, by so many threads at once."""

    threads: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class HostGather:
    """Rows gathered by so many threads at once, a batch each; the speed is that of all together."""

    threads: int
    rows: RowSpeeds


@dataclass(frozen=True, slots=True)
class HostFigures:
    """What the processor and its memory do."""

    copies: tuple[CopySpeed, ...]
    gathers: tuple[HostGather, ...]

    def __post_init__(self) -> None:
        for counts in ([copy.threads for copy in self.copies], [gather.threads for gather in self.gathers]):
            if counts[:1] != [1] or counts != sorted(set(counts)):
                raise ValueError(f"figures must be given by rising threads, from 1 on, not {counts}.")

    def copy_bytes_per_second(self, *, threads: int = 1) -> float:
        """Of all threads together; more than were measured bring nothing."""
        counts = [copy.threads for copy in self.copies]
        return float(np.interp(threads, counts, [copy.bytes_per_second for copy in self.copies]))

    def gather_bytes_per_second(self, row_nbytes: int, *, threads: int = 1) -> float:
        """Of all threads together; more than were measured bring nothing."""
        counts = [gather.threads for gather in self.gathers]
        speeds = [gather.rows.bytes_per_second(row_nbytes) for gather in self.gathers]
        return float(np.interp(threads, counts, speeds))


@dataclass(frozen=True, slots=True)
class DiskFigures:
    """One file, read from front to back."""

    folder: str
    filesystem: str
    disk_bytes_per_second: float | None  # None: the page cache could not be emptied of it
    page_cache_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """What a GPU and its link do; the copies named without a word about memory are from or to page-locked memory."""

    name: str
    free_nbytes: int
    total_nbytes: int
    pcie_generation: int | None
    pcie_width: int | None
    host_to_device_bytes_per_second: float
    device_to_host_bytes_per_second: float
    both_ways_bytes_per_second: float  # the sum of both directions, at once
    pageable_host_to_device_bytes_per_second: float
    pageable_device_to_host_bytes_per_second: float
    page_lock_bytes_per_second: float
    small_copy_seconds: float  # 4 KiB to the device, queued one after the other
    readback_seconds: float  # 4 bytes from the device, each waited for
    launch_seconds: float | None  # an empty kernel, queued one after the other
    launch_and_wait_seconds: float | None
    pull: RowSpeeds | None  # a kernel reads page-locked rows
    batched_copy: RowSpeeds | None  # a DMA a row


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Probe:
    """What was measured on one machine, when, and what could not be."""

    hardware: Hardware
    measured_at: datetime
    seconds: float
    host: HostFigures
    disk: DiskFigures | None
    device: DeviceFigures | None
    missing: tuple[str, ...]

    @classmethod
    def cached(cls) -> "Probe | None":
        """What was last measured on this machine, or None; a file that cannot be used counts as none."""
        try:
            if next(cache_folder().glob("probe-*.json"), None) is None:  # nobody ever measured: no need to know the GPU
                return None
            hardware = Hardware.here()
            return cls._read(_path(hardware), hardware)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("the saved probe cannot be used: %s. `forebay probe --fresh` replaces it.", error)
            return None

    def save(self) -> Path:
        """Keep it for `cached`; the file it is in."""
        try:
            path = _path(self.hardware)
            write_atomically(path, self.to_json())
        except (OSError, RuntimeError) as error:
            raise OSError(f"the probe could not be saved: {error}. Set XDG_CACHE_HOME to a folder of yours.") from error
        return path

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def _read(cls, path: Path, hardware: Hardware) -> "Probe":
        probe = from_json(cls, json.loads(path.read_text()))
        if probe.hardware.fingerprint != hardware.fingerprint:
            raise ValueError(f"{path} was measured on another machine")
        return probe


def _path(hardware: Hardware) -> Path:
    return cache_folder() / f"probe-{hardware.fingerprint}.json"
