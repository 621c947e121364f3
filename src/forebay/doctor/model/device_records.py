"""Device activity as CUPTI recorded it, in one layout for every CUPTI version from 12.1 on."""

import base64
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["RECORD", "CopyKind", "DeviceRecords", "MemoryKind", "RecordKind", "sort_by_start"]

# The layout of `Record` in capture/device/buffers.c.
RECORD = np.dtype(
    [
        ("start", "u8"),
        ("end", "u8"),
        ("nbytes", "u8"),
        ("name", "u8"),
        ("kind", "u4"),
        ("what", "u4"),
        ("device", "u4"),
        ("stream", "u4"),
        ("correlation", "u4"),
        ("thread", "u4"),
        ("grid", "u4", 3),
        ("block", "u4", 3),
        ("source", "u1"),
        ("target", "u1"),
        ("flags", "u1"),
        ("unused", "u1", 5),
    ]
)


class RecordKind(IntEnum):
    """The values of CUPTI_ACTIVITY_KIND_* that the doctor reads."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    SYNCHRONIZATION = 38
    GRAPH_TRACE = 51


class CopyKind(IntEnum):
    """The direction of a copy."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9


class MemoryKind(IntEnum):
    """The kind of memory at one end of a copy."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


ASYNC = 1  # bit in the flags of a copy: the copy was requested without waiting for it


def sort_by_start(records: Any) -> Any:
    """Sort records by start time. CUPTI returns buffers one stream at a time."""
    return records[np.argsort(records["start"], kind="stable")]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRecords:
    """The records of the traced steps, with times on the clock of the API ledger."""

    records: Any  # an array of RECORD, sorted by start; `name` is an index into `names`
    names: tuple[str, ...]
    dropped: int  # number of records that did not fit into the buffers
    version: int  # of the CUPTI interface

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values. There are many records, so they are compressed."""
        packed = base64.b64encode(zlib.compress(self.records.tobytes())).decode()
        return {"records": packed, "names": list(self.names), "dropped": self.dropped, "version": self.version}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "DeviceRecords":
        records = np.frombuffer(zlib.decompress(base64.b64decode(document["records"])), RECORD)
        return cls(records, tuple(document["names"]), document["dropped"], document["version"])
