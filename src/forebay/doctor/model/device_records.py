"""What the device itself did, as CUPTI recorded it; the same for every version of CUPTI from 12.1 on. Pure."""

import base64
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

__all__ = ["RECORD", "CopyKind", "MemoryKind", "RecordKind", "Recorded", "in_order"]

# As in buffers.c.
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
    """CUPTI_ACTIVITY_KIND_*, those that are asked for."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    SYNCHRONIZATION = 38
    GRAPH_TRACE = 51


class CopyKind(IntEnum):
    """A copy's direction."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9


class MemoryKind(IntEnum):
    """What kind of memory one side of a copy is."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


ASYNC = 1  # in a copy's flags: it was asked for without waiting


def in_order(records: Any) -> Any:
    """By when they began; buffers come back one stream at a time."""
    return records[np.argsort(records["start"], kind="stable")]


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Records of some steps, with times on the clock of the API ledger."""

    records: Any  # an array of RECORD, by start; `name` is an index into names
    names: tuple[str, ...]
    dropped: int  # records that found no room
    version: int  # of CUPTI's interface

    def to_json(self) -> dict[str, Any]:
        """Plain values: records are many, so they are packed."""
        packed = base64.b64encode(zlib.compress(self.records.tobytes())).decode()
        return {"records": packed, "names": list(self.names), "dropped": self.dropped, "version": self.version}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Recorded":
        records = np.frombuffer(zlib.decompress(base64.b64decode(document["records"])), RECORD)
        return cls(records, tuple(document["names"]), document["dropped"], document["version"])
