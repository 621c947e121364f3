"""What the device did, as events beside those of the script: copies and kernels, each on its stream. Pure."""

from typing import Any

from forebay.doctor.model.capture import Capture
from forebay.doctor.model.device_records import CopyKind, MemoryKind, Recorded, RecordKind
from forebay.doctor.model.events import Event, Kind

__all__ = ["KERNEL", "all_events"]

KERNEL = "kernel"  # a kind of event that only the device has

_COPIES: dict[int, Kind] = {CopyKind.HOST_TO_DEVICE: Kind.UPLOAD, CopyKind.DEVICE_TO_HOST: Kind.DOWNLOAD}
_MEMORY = {kind.value: kind.name.lower() for kind in MemoryKind}
_FIELDS = ("kind", "what", "device", "stream", "start", "end", "nbytes", "name", "source", "target")


def all_events(capture: Capture) -> list[Event]:
    """What the script called, and what the device did where it was recorded."""
    return [*capture.events, *(_events(capture.device) if capture.device else ())]


def _events(recorded: Recorded) -> list[Event]:
    """Calls and waits of the host are left out: the script's own events tell them, by line."""
    rows = zip(*(recorded.records[field].tolist() for field in _FIELDS), strict=True)
    return [event for row in rows if (event := _event(recorded.names, *row)) is not None]


def _event(
    names: tuple[str, ...],
    record: int,
    what: int,
    device: int,
    stream: int,
    start: int,
    end: int,
    nbytes: int,
    name: int,
    source: int,
    target: int,
) -> Event | None:
    detail: dict[str, Any] = {"device": f"cuda:{device}", "stream": stream}
    match record:
        case RecordKind.MEMCPY:
            detail["memory"] = f"{_MEMORY.get(source, source)} to {_MEMORY.get(target, target)}"
            return Event(_COPIES.get(what, Kind.MOVE).value, "copy", -1, stream, start, end, nbytes, detail)
        case RecordKind.MEMSET:
            return Event(KERNEL, "memset", -1, stream, start, end, nbytes, detail)
        case RecordKind.KERNEL | RecordKind.CONCURRENT_KERNEL | RecordKind.GRAPH_TRACE:
            return Event(KERNEL, names[name] or "graph", -1, stream, start, end, 0, detail)
    return None
