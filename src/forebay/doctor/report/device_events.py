"""Device records as timeline events: copies and kernels on their streams."""

from typing import Any, NamedTuple

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import CopyKind, DeviceRecords, MemoryKind, RecordKind
from forebay.doctor.model.events import EventKind, LedgerEvent

__all__ = ["KERNEL", "all_events"]

KERNEL = "kernel"  # the event kind of device work; the script has no such event

_COPIES: dict[int, EventKind] = {CopyKind.HOST_TO_DEVICE: EventKind.UPLOAD, CopyKind.DEVICE_TO_HOST: EventKind.DOWNLOAD}
_MEMORY = {kind.value: kind.name.lower() for kind in MemoryKind}


class _DeviceRecord(NamedTuple):
    """The fields of a device record that the timeline needs; names are those of RECORD."""

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
    """Return the events of the script, and of the device if it was recorded."""
    return [*capture.events, *(_events(capture.device) if capture.device else ())]


def _events(recorded: DeviceRecords) -> list[LedgerEvent]:
    """Convert device records. Host calls and waits are omitted: the script's events show them with their line."""
    rows = zip(*(recorded.records[field].tolist() for field in _DeviceRecord._fields), strict=True)
    return [event for row in rows if (event := _event(recorded.names, _DeviceRecord(*row))) is not None]


def _event(names: tuple[str, ...], record: _DeviceRecord) -> LedgerEvent | None:
    detail: dict[str, Any] = {"device": f"cuda:{record.device}", "stream": record.stream}
    match record.kind:
        case RecordKind.MEMCPY:
            source, target = (_MEMORY.get(side, side) for side in (record.source, record.target))
            detail["memory"] = f"{source} to {target}"
            kind, api, nbytes = _COPIES.get(record.what, EventKind.MOVE).value, "copy", record.nbytes
        case RecordKind.MEMSET:
            kind, api, nbytes = KERNEL, "memset", record.nbytes
        case RecordKind.KERNEL | RecordKind.CONCURRENT_KERNEL | RecordKind.GRAPH_TRACE:
            kind, api, nbytes = KERNEL, names[record.name] or "graph", 0
        case _:
            return None
    return LedgerEvent(kind, api, -1, record.stream, record.start, record.end, nbytes, detail)
