"""Ceilings: the measured speed limits of one machine, and the file that stores them.

The time to copy a row is a fixed time plus a time per byte. Between two measured row sizes, `RowSpeeds` therefore
interpolates the time per row. Interpolated speeds would be too low.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.hardware import Hardware
from forebay.core.json_checks import parse_json, read_bounded
from forebay.core.json_values import cache_folder, from_json, to_json, write_atomically

__all__ = [
    "CopySpeed",
    "DeviceCeilings",
    "DiskCeilings",
    "HostCeilings",
    "HostGather",
    "Probe",
    "RowSpeed",
    "RowSpeeds",
]

MAX_NBYTES = 1 << 20  # largest size of a saved probe in bytes; a real probe has 5 KB
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowSpeed:
    """Speed of copying rows of one size in random order."""

    row_nbytes: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class RowSpeeds:
    """Speeds of copying rows in random order, measured for several row sizes.

    >>> speeds = RowSpeeds((RowSpeed(100, 1e9), RowSpeed(1000, 5e9)))
    >>> [round(speeds.bytes_per_second(row_nbytes) / 1e9, 2) for row_nbytes in (50, 550, 5000)]
    [0.5, 3.67, 5.0]
    """

    points: tuple[RowSpeed, ...]

    def __post_init__(self) -> None:
        sizes = [point.row_nbytes for point in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"row sizes are {sizes}. Pass one or more, each at least 1, in ascending order.")

    def bytes_per_second(self, row_nbytes: int) -> float:
        """Return the speed for one row size, interpolated between the measured sizes.

        A row smaller than all measured sizes takes as much time as a row of the smallest size. A row larger than all
        measured sizes is copied at the speed of the largest size.
        """
        if row_nbytes >= self.points[-1].row_nbytes:
            return self.points[-1].bytes_per_second
        sizes = [point.row_nbytes for point in self.points]
        seconds = [point.row_nbytes / point.bytes_per_second for point in self.points]
        return row_nbytes / float(np.interp(row_nbytes, sizes, seconds))


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """Speed of contiguous copies in host memory."""

    threads: int
    bytes_per_second: float  # speed of all threads together


@dataclass(frozen=True, slots=True)
class HostGather:
    """Speed of gathering rows in host memory. Each thread gathers its own batch."""

    threads: int
    rows: RowSpeeds  # speeds of all threads together


@dataclass(frozen=True, slots=True)
class HostCeilings:
    """Measured speeds of the CPU and host memory."""

    copies: tuple[CopySpeed, ...]
    gathers: tuple[HostGather, ...]

    def __post_init__(self) -> None:
        for counts in ([copy.threads for copy in self.copies], [gather.threads for gather in self.gathers]):
            if counts[:1] != [1] or counts != sorted(set(counts)):
                raise ValueError(f"thread counts are {counts}. Pass 1 and larger counts, in ascending order.")

    def copy_bytes_per_second(self, *, threads: int = 1) -> float:
        """Return the copy speed of all threads together.

        The speed is interpolated between the measured numbers of threads, and constant above the largest number.
        """
        counts = [copy.threads for copy in self.copies]
        return float(np.interp(threads, counts, [copy.bytes_per_second for copy in self.copies]))

    def gather_bytes_per_second(self, row_nbytes: int, *, threads: int = 1) -> float:
        """Return the gather speed of all threads together.

        The speed is interpolated between the measured numbers of threads, and constant above the largest number.
        """
        counts = [gather.threads for gather in self.gathers]
        speeds = [gather.rows.bytes_per_second(row_nbytes) for gather in self.gathers]
        return float(np.interp(threads, counts, speeds))


@dataclass(frozen=True, slots=True)
class DiskCeilings:
    """Measured speeds of reading one file sequentially."""

    folder: str
    filesystem: str
    disk_bytes_per_second: float | None  # None if the file could not be evicted from the page cache
    page_cache_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DeviceCeilings:
    """Measured speeds of one GPU and of its link to the host.

    Copies use page-locked host memory, except in the fields with `pageable` in their names. A field is None if the
    probe could not measure it.
    """

    name: str
    free_nbytes: int
    total_nbytes: int
    pcie_generation: int | None
    pcie_width: int | None  # lanes
    host_to_device_bytes_per_second: float
    device_to_host_bytes_per_second: float
    both_ways_bytes_per_second: float  # sum of both directions, copied at the same time
    pageable_host_to_device_bytes_per_second: float
    pageable_device_to_host_bytes_per_second: float
    page_lock_bytes_per_second: float
    small_copy_seconds: float  # mean time of a 4 KiB copy to the device in a queue of copies
    readback_seconds: float  # time to copy 4 bytes to the host and wait for them
    launch_seconds: float | None  # mean time of an empty kernel in a queue of kernels
    launch_and_wait_seconds: float | None  # time to launch one empty kernel and wait for it
    pull: RowSpeeds | None  # a kernel reads rows from page-locked memory
    batched_copy: RowSpeeds | None  # one DMA per row, many rows per driver call


@dataclass(frozen=True, slots=True)
class Probe:
    """All speeds measured on one machine."""

    hardware: Hardware
    measured_at: datetime
    seconds: float  # duration of all measurements
    host: HostCeilings
    disk: DiskCeilings | None
    device: DeviceCeilings | None
    missing: tuple[str, ...]  # one sentence for each thing that the probe could not measure

    @classmethod
    def cached(cls) -> "Probe | None":
        """Return the saved probe of this machine, or None if no usable file exists."""
        try:
            # Without any saved probe, avoid the slow query of the GPU driver in `Hardware.detect`.
            if next(cache_folder().glob("probe-*.json"), None) is None:
                return None
            hardware = Hardware.detect()
            return cls._read(_probe_path(hardware), hardware)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, ValueError) as error:
            _log.warning("The saved probe cannot be used: %s. Run `forebay probe --fresh` to replace it.", error)
            return None

    def save(self) -> Path:
        """Write the file that `cached` reads, and return its path."""
        try:
            path = _probe_path(self.hardware)
            write_atomically(path, self.to_json())
        except (OSError, RuntimeError) as error:
            raise OSError(f"could not save the probe: {error}. Set XDG_CACHE_HOME to a writable folder.") from error
        return path

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def _read(cls, path: Path, hardware: Hardware) -> "Probe":
        probe = from_json(cls, parse_json(read_bounded(path, max_nbytes=MAX_NBYTES)))
        if probe.hardware.fingerprint != hardware.fingerprint:
            raise ValueError(f"{path} belongs to another machine")
        return probe


def _probe_path(hardware: Hardware) -> Path:
    return cache_folder() / f"probe-{hardware.fingerprint}.json"
