"""Memory use of host and devices, copies of uploaded arrays, and constants in graphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import dtype_bits, is_device
from forebay.doctor.model.events import EventKind, LedgerEvent, Line

__all__ = [
    "HOST",
    "PAGE_LOCKED",
    "GraphConstants",
    "MemoryLevel",
    "MemoryUsage",
    "DataCopies",
    "find_graph_constants",
    "memory_levels",
    "memory_usage",
]

HOST, PAGE_LOCKED = "host", "page-locked"
Places = tuple[str, ...]  # where data is stored: HOST, PAGE_LOCKED or names of devices

PYTHON_NUMBER_NBYTES = 32  # bytes per number in a Python list: 24 of the object and 8 of the reference to it


@dataclass(frozen=True, slots=True)
class DataCopies:
    """Uploaded arrays whose copies are in the same places."""

    pieces: int  # number of distinct arrays
    nbytes: int  # size of the largest array before its upload
    places: Places  # of the data of an array on the host, then of each copy that the uploads made
    held_nbytes: int  # size of the largest array together with all its copies
    different_nbytes: int  # sum of the sizes of all arrays before their upload, each counted once
    copied_nbytes: int  # bytes that all uploads copied


@dataclass(frozen=True, slots=True)
class GraphConstants:
    """Arrays that one line stores as constants in compiled graphs."""

    api: str
    line: Line | None
    nbytes: int  # of the constants in the largest graph
    times: int  # number of graphs
    total_nbytes: int  # of the constants in all graphs
    seconds: float  # to build the largest graph


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """The use of host, page-locked or device memory; None for values that nothing reports."""

    place: str  # HOST, PAGE_LOCKED, or the name of a device
    framework: str | None  # the framework that reports the use; None for the host
    used_nbytes: int | None  # while the loop ran; for page-locked memory, at the last reading
    reserved_nbytes: int | None  # memory that the framework holds, in use or for later allocations
    peak_nbytes: int | None  # highest use; `reserved_nbytes` of a device if its framework reports no peak
    total_nbytes: int | None  # size of the memory
    # Per step; 0 unless the use grew between all readings in the loop, and always 0 for memory of the host.
    growth_nbytes: float

    @property
    def share(self) -> float:
        """The share of the total memory that was used at the peak; 0 if unknown."""
        return (self.peak_nbytes or 0) / self.total_nbytes if self.total_nbytes else 0.0


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Everything that the report says about memory."""

    levels: tuple[MemoryLevel, ...]
    data_copies: tuple[DataCopies, ...]  # largest `held_nbytes` first
    graph_constants: tuple[GraphConstants, ...]  # largest `total_nbytes` first


def memory_usage(view: CaptureView) -> MemoryUsage:
    """Return the memory levels, data copies and graph constants of a capture."""
    return MemoryUsage((*memory_levels(view),), (*_find_data_copies(view),), (*find_graph_constants(view),))


def memory_levels(view: CaptureView) -> Iterator[MemoryLevel]:
    """Yield the use of host memory, then of page-locked memory, then of each device."""
    readings = _readings(view)
    if readings:
        yield from _host_levels(view, readings)
    devices = {(entry["framework"], entry["device"]): None for reading in readings for entry in reading["devices"]}
    for framework, device in devices:
        entries = [_device_reading(reading, framework, device) for reading in readings]
        last = next(entry for entry in reversed(entries) if entry)
        yield MemoryLevel(
            place=device,
            framework=framework,
            used_nbytes=_reading_in_loop(readings, entries).get("used_nbytes"),
            reserved_nbytes=last.get("reserved_nbytes"),
            peak_nbytes=last.get("peak_nbytes") or last.get("reserved_nbytes"),
            total_nbytes=last.get("total_nbytes") or _gpu_memory(view, device),
            growth_nbytes=_growth_per_step(
                [
                    (reading["steps"], entry["used_nbytes"])
                    for reading, entry in zip(readings, entries, strict=True)
                    if entry
                ]
            ),
        )


def find_graph_constants(view: CaptureView) -> Iterator[GraphConstants]:
    """Yield the graph constants of each line, largest total first."""
    lines: dict[tuple[str, int], list[LedgerEvent]] = {}
    for event in view.events_of(EventKind.BUILD, EventKind.COMPILE):
        if _constant_nbytes(event):
            lines.setdefault((event.api, event.line), []).append(event)
    for group in sorted(lines.values(), key=lambda events: -sum(map(_constant_nbytes, events))):
        largest = max(group, key=_constant_nbytes)
        total = sum(map(_constant_nbytes, group))
        yield GraphConstants(
            largest.api, view.line(largest.line), _constant_nbytes(largest), len(group), total, largest.seconds
        )


def _readings(view: CaptureView) -> list[dict[str, Any]]:
    """Return the readings that `capture.memory_samples` made, in order of time."""
    readings: list[dict[str, Any]] = view.capture.facts.get("memory") or []
    return readings


def _host_levels(view: CaptureView, readings: Sequence[dict[str, Any]]) -> Iterator[MemoryLevel]:
    """Yield the use of host memory and, if there is any, of page-locked memory.

    Mapped files do not count, because the operating system can take back their memory at any time.
    """
    last = readings[-1]
    mapped = max(reading.get("mapped_nbytes") or 0 for reading in readings)
    peak, host_nbytes = last.get("host_peak_nbytes"), [reading.get("host_nbytes") or 0 for reading in readings]
    peak_without_files = None if peak is None else max(0, peak - mapped, *host_nbytes)
    used, total = _reading_in_loop(readings, readings).get("host_nbytes"), view.capture.machine.get("memory_nbytes")
    yield MemoryLevel(HOST, None, used, None, peak_without_files, total, 0.0)
    if last.get("pinned_nbytes") or last.get("pinned_peak_nbytes"):
        used, peak = last.get("pinned_nbytes"), last.get("pinned_peak_nbytes")
        yield MemoryLevel(PAGE_LOCKED, "torch", used, None, peak, total, 0.0)


def _reading_in_loop(readings: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first entry that was read in the loop, or else the last entry.

    `entries` has one dict per reading; the dict is empty if nothing reported its values. A reading is in the loop if
    its `steps` are not 0.
    """
    in_loop = [entry for reading, entry in zip(readings, entries, strict=True) if reading["steps"] and entry]
    return in_loop[0] if in_loop else entries[-1]


def _device_reading(reading: dict[str, Any], framework: str, device: str) -> dict[str, Any]:
    """Return the values of a framework's device in a reading; empty if there are none."""
    entries = [entry for entry in reading["devices"] if (entry["framework"], entry["device"]) == (framework, device)]
    return entries[0] if entries else {}


def _growth_per_step(points: Sequence[tuple[int, int]]) -> float:
    """Return the smallest growth per step between two consecutive readings in the loop, in bytes.

    `points` are pairs: the number of steps before a reading, and the used bytes. Return 0 unless there are at least
    three readings in the loop and the use grew between all of them.
    """
    in_loop = [(steps, used) for steps, used in points if steps]
    rates = [
        (later_used - used) / (later_steps - steps)
        for (steps, used), (later_steps, later_used) in pairwise(in_loop)
        if later_steps > steps
    ]
    return min(rates) if len(rates) > 1 and min(rates) > 0 else 0.0


def _gpu_memory(view: CaptureView, device: str) -> int | None:
    """Return the memory size in bytes that NVML reports for this GPU; None if unknown."""
    number = device.rpartition(":")[2]
    gauges = view.capture.facts.get("gauges") or []
    is_known = number.isdigit() and int(number) < len(gauges)
    return gauges[int(number)].get("total_nbytes") if is_known else None


def _find_data_copies(view: CaptureView) -> Iterator[DataCopies]:
    """Yield uploaded arrays, grouped by the places of their copies, largest `held_nbytes` first.

    Uploads with the same fingerprint belong to one array.
    """
    uploads_by_key: dict[str, list[LedgerEvent]] = {}
    for event in view.events_of(EventKind.UPLOAD):
        key = (event.detail or {}).get("key")
        if key and event.nbytes:
            uploads_by_key.setdefault(key, []).append(event)
    arrays_by_places: dict[tuple[Places, Places], list[list[LedgerEvent]]] = {}
    for events in uploads_by_key.values():
        arrays_by_places.setdefault((_sources(events), _targets(events)), []).append(events)
    copies = [_data_copies(sources, targets, arrays) for (sources, targets), arrays in arrays_by_places.items()]
    yield from sorted(copies, key=lambda group: -group.held_nbytes)


def _sources(events: Sequence[LedgerEvent]) -> Places:
    """Return the kinds of host memory from which these uploads read."""
    return (*sorted({PAGE_LOCKED if (event.detail or {}).get("pinned") else HOST for event in events}),)


def _targets(events: Sequence[LedgerEvent]) -> Places:
    """Return the place of each copy that the uploads of one array made.

    Assume that all uploads of one call site to one device make one copy: a later upload replaces an earlier one.
    """
    copies = {(_target(event), event.api, event.line) for event in events}
    return (*sorted(target for target, *_ in copies),)


def _target(event: LedgerEvent) -> str:
    device = (event.detail or {}).get("device")
    return str(device) if is_device(device) else HOST


def _data_copies(sources: Places, targets: Places, arrays: Sequence[Sequence[LedgerEvent]]) -> DataCopies:
    largest = max((events[0] for events in arrays), key=lambda event: event.nbytes)
    return DataCopies(
        pieces=len(arrays),
        nbytes=_nbytes_before_upload(largest),
        places=sources + targets,
        held_nbytes=len(sources) * _nbytes_before_upload(largest) + len(targets) * largest.nbytes,
        different_nbytes=sum(_nbytes_before_upload(events[0]) for events in arrays),
        copied_nbytes=sum(event.nbytes for events in arrays for event in events),
    )


def _nbytes_before_upload(event: LedgerEvent) -> int:
    """Return the size of the data before the upload changed its type or dtype."""
    source_dtype, target_bits = (event.detail or {}).get("from_dtype"), dtype_bits((event.detail or {}).get("dtype"))
    if source_dtype in ("list", "tuple") and target_bits:
        return event.nbytes * 8 // target_bits[1] * PYTHON_NUMBER_NBYTES
    source_bits = dtype_bits(source_dtype)
    return event.nbytes * source_bits[1] // target_bits[1] if source_bits and target_bits else event.nbytes


def _constant_nbytes(event: LedgerEvent) -> int:
    return (event.detail or {}).get("constants_nbytes") or 0
