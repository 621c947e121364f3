"""Device records as timeline events: copies and kernels on their streams."""

from typing import Any, NamedTuple

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import CopyKind, DeviceRecords, MemoryKind, RecordKind
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["KERNEL", "all_events"]

KERNEL = "kernel"  # kind of events that only the device has; it is not an EventKind

_COPY_EVENTS: dict[int, EventKind] = {
    CopyKind.HOST_TO_DEVICE: EventKind.UPLOAD,
    CopyKind.DEVICE_TO_HOST: EventKind.DOWNLOAD,
}
_MEMORY_NAMES = {kind.value: kind.name.lower() for kind in MemoryKind}


class _DeviceRecord(NamedTuple):
    """The fields of RECORD that the timeline needs."""

    kind: int
    what: int
    device: int
    stream: int
    start: int
    end: int
    nbytes: int
    name: int
    source: int
    target: int


def all_events(capture: Capture) -> list[LedgerEvent]:
    """Return the events of the host, and those of the device if it was recorded."""
    return [*capture.events, *(_device_events(capture.device) if capture.device else ())]


def _device_events(device: DeviceRecords) -> list[LedgerEvent]:
    """Convert device records to events.

    Records of host calls and waits are omitted, because the host events show them with their source line.
    """
    rows = zip(*(device.records[field].tolist() for field in _DeviceRecord._fields), strict=True)
    return [event for row in rows if (event := _to_event(device.names, _DeviceRecord(*row))) is not None]


def _to_event(names: tuple[str, ...], record: _DeviceRecord) -> LedgerEvent | None:
    """Convert a record of a copy, memset, kernel or graph; return None for other records."""
    detail: dict[str, Any] = {"device": f"cuda:{record.device}", "stream": record.stream}
    match record.kind:
        case RecordKind.MEMCPY:
            source, target = (_MEMORY_NAMES.get(kind, kind) for kind in (record.source, record.target))
            detail["memory"] = f"{source} to {target}"
            kind, api, nbytes = _COPY_EVENTS.get(record.what, EventKind.MOVE).value, "copy", record.nbytes
        case RecordKind.MEMSET:
            kind, api, nbytes = KERNEL, "memset", record.nbytes
        case RecordKind.KERNEL | RecordKind.CONCURRENT_KERNEL | RecordKind.GRAPH_TRACE:
            kind, api, nbytes = KERNEL, names[record.name] or "graph", 0
        case _:
            return None
    return LedgerEvent(kind, api, -1, record.stream, record.start, record.end, nbytes, detail)
