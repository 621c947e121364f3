"""The time of kernels that the device's memory limits, and the bandwidth that they reach.

The bytes of a kernel are an estimate from its name and its size (`kernel_bytes`), or come from the compiled program of
JAX. The doctor does not use hardware counters, because they need privileges.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import count_blocks, count_threads, seconds_per_step
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.kernel_bytes import bytes_per_block
from forebay.doctor.analyse.kernel_kinds import MEMORY_BOUND, KernelKind, kind_of_kernel
from forebay.doctor.model.device_records import CopyKind, RecordKind

__all__ = ["MemoryWork", "find_memory_work"]

MIN_NS = 5_000  # nanoseconds; neither memory nor arithmetic limits a shorter kernel
MAX_BYTES_PER_NS = 10_000  # no GPU transfers more; a larger estimate is wrong, for example because a cache has the data
MAX_THREADS, MAX_BLOCKS = 1024, 1 << 31  # per block and per kernel: limits of CUDA; a damaged record may have more
MIN_BLOCKS = 17  # fewer blocks do not use the whole memory bandwidth; the rule `low_occupancy` reports such kernels


@dataclass(frozen=True, slots=True, eq=False)
class MemoryWork:
    """Kernels and copies inside the device whose time the device's memory limits.

    All times are seconds per step.
    """

    mask: Any  # selects these operations in the device view
    seconds: float
    device_seconds: float  # in which the device computed or copied within its memory
    seconds_by_kind: dict[KernelKind, float]  # longest first
    names: frozenset[str]  # of the kernels
    known_share: float  # share of `seconds` that operations with a known number of bytes take
    bytes_per_second: float  # mean bandwidth of operations with a known number of bytes; 0.0 if there are none

    @property
    def share(self) -> float:
        """The share of these operations in `device_seconds`."""
        return min(1.0, self.seconds / self.device_seconds) if self.device_seconds else 0.0

    def seconds_of(self, *kinds: KernelKind) -> float:
        return sum(self.seconds_by_kind.get(kind, 0.0) for kind in kinds)


def find_memory_work(view: CaptureView, device_view: DeviceView) -> MemoryWork:
    """Find the operations that memory limits, and estimate their bytes."""
    operations = device_view.operations
    kinds = _kinds_of(device_view)
    durations = operations["end"].astype(np.int64) - operations["start"].astype(np.int64)
    is_copy = (operations["kind"] == RecordKind.MEMCPY) & (operations["what"] == CopyKind.DEVICE_TO_DEVICE)
    is_large = (count_blocks(operations) >= MIN_BLOCKS) | is_copy | (operations["kind"] == RecordKind.MEMSET)
    mask = np.isin(kinds, [kind.value for kind in MEMORY_BOUND]) & is_large & (durations >= MIN_NS)
    nbytes = np.where(mask, _estimate_nbytes(view, device_view, is_copy), 0)
    is_known = mask & (nbytes > 0) & (nbytes <= MAX_BYTES_PER_NS * durations)
    known_ns, total_ns = int(durations[is_known].sum()), int(durations[mask].sum())
    by_kind = {
        KernelKind(kind): float(durations[mask & (kinds == kind)].sum()) / 1e9 / device_view.steps_done
        for kind in np.unique(kinds[mask]).tolist()
    }
    return MemoryWork(
        mask=mask,
        seconds=seconds_per_step(device_view, device_view.intervals_of(mask)),
        device_seconds=seconds_per_step(device_view, device_view.working_intervals),
        seconds_by_kind=dict(sorted(by_kind.items(), key=lambda item: -item[1])),
        names=frozenset(device_view.names[index] for index in np.unique(operations["name"][mask]).tolist()),
        known_share=known_ns / total_ns if total_ns else 0.0,
        bytes_per_second=float(nbytes[is_known].sum()) / known_ns * 1e9 if known_ns else 0.0,
    )


def _kinds_of(device_view: DeviceView) -> Any:
    """Return the kind of each operation. Copies inside the device and memsets count as copies."""
    operations = device_view.operations
    by_name = np.array([kind_of_kernel(name).value for name in device_view.names] or [KernelKind.UNKNOWN.value])
    kinds = by_name[np.where(device_view.is_kernel, operations["name"], 0).astype(np.int64)]
    is_inside = (operations["kind"] == RecordKind.MEMCPY) & (operations["what"] == CopyKind.DEVICE_TO_DEVICE)
    is_inside |= operations["kind"] == RecordKind.MEMSET
    has_name = np.isin(operations["kind"], (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL))
    return np.where(is_inside, KernelKind.COPY.value, np.where(has_name, kinds, KernelKind.UNKNOWN.value))


def _estimate_nbytes(view: CaptureView, device_view: DeviceView, is_copy: Any) -> Any:
    """Return the bytes that each operation reads and writes, or 0 if unknown."""
    operations = device_view.operations
    version = _version_of(view.capture.versions.get("torch", ""))
    blocks = count_blocks(operations)
    threads = (count_threads(operations) // np.maximum(blocks, 1)).clip(0, MAX_THREADS)
    keys, positions = np.unique(
        np.stack([operations["name"].astype(np.int64), threads], 1), axis=0, return_inverse=True
    )
    per_block = np.array(
        [bytes_per_block(device_view.names[name], count, version) or 0 for name, count in keys.tolist()] or [0], float
    )
    kernel_nbytes = per_block[positions.ravel()] * blocks.clip(0, MAX_BLOCKS)
    by_name = view.capture.facts.get("kernels") or {}  # kernel of a compiled program of JAX -> bytes per launch
    per_launch = np.array([by_name.get(name, 0) for name in device_view.names] or [0], float)
    launch_nbytes = per_launch[np.where(device_view.is_kernel, operations["name"], 0).astype(np.int64)]
    kernel_nbytes = np.where(launch_nbytes > 0, launch_nbytes, kernel_nbytes)
    copied_nbytes = operations["nbytes"].astype(float)
    is_memset = operations["kind"] == RecordKind.MEMSET
    return np.where(is_copy, 2 * copied_nbytes, np.where(is_memset, copied_nbytes, kernel_nbytes))


def _version_of(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version, or (0, 0) if it is unknown."""
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
