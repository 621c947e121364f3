"""Device activity that CUPTI recorded, in one layout for all CUPTI versions since 12.1."""

import base64
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

__all__ = [
    "CALL_KINDS",
    "MEMORY_CALLS",
    "RECORD",
    "CopyKind",
    "DeviceRecords",
    "MemoryKind",
    "RecordKind",
    "mask_memory_calls",
    "mask_working_calls",
    "sort_by_start",
]

# The layout of `Record` in capture/device/buffers.c, which converts the records of CUPTI.
RECORD = np.dtype(
    [
        ("start", "u8"),  # nanoseconds
        ("end", "u8"),  # nanoseconds
        ("nbytes", "u8"),  # bytes of a copy or memset
        ("name", "u8"),  # index of a kernel's name in `DeviceRecords.names`
        ("kind", "u4"),  # RecordKind
        # Depends on the kind: CopyKind of a copy, CUPTI's number of a CUDA function, CUPTI's type of a synchronization,
        # or id of a CUDA graph.
        ("what", "u4"),
        ("device", "u4"),  # number of the GPU
        ("stream", "u4"),
        ("correlation", "u4"),  # equal for a host call and the device work that it starts
        ("thread", "u4"),  # id of the thread that made a host call
        ("grid", "u4", 3),  # size of a kernel's grid, in blocks
        ("block", "u4", 3),  # size of a kernel's blocks, in threads
        ("source", "u1"),  # MemoryKind of a copy
        ("target", "u1"),  # MemoryKind of a copy
        ("flags", "u1"),  # of a copy: ASYNC or 0
        ("unused", "u1", 5),
    ]
)


class RecordKind(IntEnum):
    """The kind of a record, with the values of CUPTI_ACTIVITY_KIND_*."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    SYNCHRONIZATION = 38
    GRAPH_TRACE = 51


CALL_KINDS = (RecordKind.RUNTIME, RecordKind.DRIVER)  # kinds of CUDA calls
# Kind of a CUDA call -> CUPTI's numbers of functions that allocate or free device memory, from cupti_runtime_cbid.h and
# cupti_driver_cbid.h. Asynchronous allocations from a CUDA pool are not listed, because they do not wait for a device.
MEMORY_CALLS: dict[RecordKind, dict[int, str]] = {
    RecordKind.RUNTIME: {20: "cudaMalloc", 22: "cudaFree"},
    RecordKind.DRIVER: {
        243: "cuMemAlloc",
        245: "cuMemFree",
        549: "cuMemCreate",
        550: "cuMemRelease",
        551: "cuMemMap",
        552: "cuMemUnmap",
        553: "cuMemSetAccess",
    },
}


class CopyKind(IntEnum):
    """The direction of a copy, with the values of CUPTI_ACTIVITY_MEMCPY_KIND_*."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9


class MemoryKind(IntEnum):
    """The memory that a copy reads or writes, with the values of CUPTI_ACTIVITY_MEMORY_KIND_*."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


MAX_NBYTES = 512 << 20  # of all records in a file
MAX_COPY_NBYTES = 1 << 50  # of one copy; the sum of 8,000 such copies still fits into int64
ASYNC = 1  # flag of a copy that an asynchronous call started


def sort_by_start(records: Any) -> Any:
    """Return the records sorted by start. CUPTI delivers them grouped by stream."""
    return records[np.argsort(records["start"], kind="stable")]


def mask_working_calls(records: Any) -> Any:
    """Return a mask of the CUDA calls that queued device work or waited for it."""
    is_call = np.isin(records["kind"], CALL_KINDS)
    return is_call & np.isin(records["correlation"], records["correlation"][~is_call])


def mask_memory_calls(records: Any) -> Any:
    """Return a mask of the CUDA calls that only allocated or freed device memory."""
    is_memory_call = np.zeros(len(records), bool)
    for kind, numbers in MEMORY_CALLS.items():
        is_memory_call |= (records["kind"] == kind) & np.isin(records["what"], list(numbers))
    return is_memory_call & ~mask_working_calls(records)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRecords:
    """The device records of the recorded steps. Times use the clock of the ledger."""

    records: Any  # array with dtype RECORD, sorted by start
    names: tuple[str, ...]  # of kernels
    dropped: int  # number of records that did not fit into the buffers
    version: int  # of the CUPTI interface

    def to_json(self) -> dict[str, Any]:
        """Return JSON values. The records are compressed, because there are many."""
        packed = base64.b64encode(zlib.compress(self.records.tobytes())).decode()
        return {"records": packed, "names": list(self.names), "dropped": self.dropped, "version": self.version}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "DeviceRecords":
        """Return the object that `to_json` converted.

        Raise ValueError or zlib.error if the records are damaged or too many.
        """
        decompressor = zlib.decompressobj()
        packed = decompressor.decompress(base64.b64decode(document["records"]), MAX_NBYTES)
        if decompressor.unconsumed_tail or not decompressor.eof:
            raise ValueError(f"device.records is incomplete, or has more than {MAX_NBYTES:,} bytes")
        records = np.frombuffer(packed, RECORD)
        _check_records(records, len(document["names"]))
        return cls(records, tuple(document["names"]), document["dropped"], document["version"])


def _check_records(records: Any, name_count: int) -> None:
    is_kernel = np.isin(records["kind"], (RecordKind.KERNEL, RecordKind.CONCURRENT_KERNEL, RecordKind.GRAPH_TRACE))
    if (records["name"][is_kernel] >= name_count).any():
        raise ValueError(f"a device record refers to a name beyond the {name_count:,} names")
    if (records["nbytes"] > MAX_COPY_NBYTES).any():
        raise ValueError(f"a device record has more than {MAX_COPY_NBYTES:,} bytes")
