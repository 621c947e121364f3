"""Memory use of host and devices, copies of the same data, and constants in graphs."""

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
Places = tuple[str, ...]

PYTHON_NUMBER_NBYTES = 32  # per number in a list: the object and its reference


@dataclass(frozen=True, slots=True)
class DataCopies:
    """Arrays that are stored in the same places, with the memory and the copies they need."""

    pieces: int  # number of distinct arrays
    nbytes: int  # of the largest array, in the script
    places: Places  # that store an array at the same time; one entry per copy
    held_nbytes: int  # of the largest array, in all places
    different_nbytes: int  # of all arrays, each counted once
    copied_nbytes: int  # by all calls


@dataclass(frozen=True, slots=True)
class GraphConstants:
    """Arrays that one line stores in graphs as constants."""

    api: str
    line: Line | None
    nbytes: int  # in the largest graph
    times: int  # number of graphs
    total_nbytes: int
    seconds: float  # to build the largest graph


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """The use of one memory; None for values that are not reported."""

    place: str  # host, page-locked, or a device
    framework: str | None
    used_nbytes: int | None  # while the loop ran
    reserved_nbytes: int | None  # by the framework for later allocations
    peak_nbytes: int | None
    total_nbytes: int | None
    growth_nbytes: float  # per step; 0 unless it grew at every reading

    @property
    def share(self) -> float:
        """The peak use as a share of the total; 0 if unknown."""
        return (self.peak_nbytes or 0) / self.total_nbytes if self.total_nbytes else 0.0


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    levels: tuple[MemoryLevel, ...]
    data_copies: tuple[DataCopies, ...]  # largest first
    graph_constants: tuple[GraphConstants, ...]


def memory_usage(view: CaptureView) -> MemoryUsage:
    return MemoryUsage((*memory_levels(view),), (*_find_data_copies(view),), (*find_graph_constants(view),))


def memory_levels(view: CaptureView) -> Iterator[MemoryLevel]:
    """Yield the memory levels, host first."""
    readings = _readings(view)
    if readings:
        yield from _host_levels(view, readings)
    devices = {(entry["framework"], entry["device"]): None for reading in readings for entry in reading["devices"]}
    for framework, device in devices:
        values = [_device_reading(reading, framework, device) for reading in readings]
        last = next(found for found in reversed(values) if found)
        yield MemoryLevel(
            place=device,
            framework=framework,
            used_nbytes=_reading_in_loop(readings, values).get("used_nbytes"),
            reserved_nbytes=last.get("reserved_nbytes"),
            peak_nbytes=last.get("peak_nbytes") or last.get("reserved_nbytes"),
            total_nbytes=last.get("total_nbytes") or _gpu_memory(view, device),
            growth_nbytes=_growth_per_step(
                [(r["steps"], t["used_nbytes"]) for r, t in zip(readings, values, strict=True) if t]
            ),
        )


def find_graph_constants(view: CaptureView) -> Iterator[GraphConstants]:
    """Yield constants by line, largest first."""
    lines: dict[tuple[str, int], list[LedgerEvent]] = {}
    for event in view.events_of(EventKind.BUILD, EventKind.COMPILE):
        if _constant_nbytes(event):
            lines.setdefault((event.api, event.line), []).append(event)
    for same in sorted(lines.values(), key=lambda events: -sum(map(_constant_nbytes, events))):
        largest = max(same, key=_constant_nbytes)
        total = sum(map(_constant_nbytes, same))
        yield GraphConstants(
            largest.api, view.line(largest.line), _constant_nbytes(largest), len(same), total, largest.seconds
        )


def _readings(view: CaptureView) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = view.capture.facts.get("memory") or []
    return found


def _host_levels(view: CaptureView, readings: Sequence[dict[str, Any]]) -> Iterator[MemoryLevel]:
    """Yield host levels without mapped files, which the system can reclaim."""
    last = readings[-1]
    mapped = max(reading.get("mapped_nbytes") or 0 for reading in readings)
    peak, own = last.get("host_peak_nbytes"), [reading.get("host_nbytes") or 0 for reading in readings]
    least = None if peak is None else max(0, peak - mapped, *own)
    used, total = _reading_in_loop(readings, readings).get("host_nbytes"), view.capture.machine.get("memory_nbytes")
    yield MemoryLevel(HOST, None, used, None, least, total, 0.0)
    if last.get("pinned_nbytes") or last.get("pinned_peak_nbytes"):
        used, peak = last.get("pinned_nbytes"), last.get("pinned_peak_nbytes")
        yield MemoryLevel(PAGE_LOCKED, "torch", used, None, peak, total, 0.0)


def _reading_in_loop(readings: Sequence[dict[str, Any]], values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first reading in the loop, or else the last reading."""
    steady = [found for reading, found in zip(readings, values, strict=True) if reading["steps"] and found]
    return steady[0] if steady else values[-1]


def _device_reading(reading: dict[str, Any], framework: str, device: str) -> dict[str, Any]:
    same = [entry for entry in reading["devices"] if (entry["framework"], entry["device"]) == (framework, device)]
    return same[0] if same else {}


def _growth_per_step(points: Sequence[tuple[int, int]]) -> float:
    """Return the growth per step between readings in the loop; 0 unless every reading is larger."""
    inside = [(steps, used) for steps, used in points if steps]
    rates = [(more - used) / (later - steps) for (steps, used), (later, more) in pairwise(inside) if later > steps]
    return min(rates) if len(rates) > 1 and min(rates) > 0 else 0.0


def _gpu_memory(view: CaptureView, device: str) -> int | None:
    """Return the memory size that the driver reports for this GPU."""
    number = device.rpartition(":")[2]
    gauges = view.capture.facts.get("gauges") or []
    known = number.isdigit() and int(number) < len(gauges)
    return gauges[int(number)].get("total_nbytes") if known else None


def _find_data_copies(view: CaptureView) -> Iterator[DataCopies]:
    """Group uploads by their data, and data by the places that store it."""
    data: dict[str, list[LedgerEvent]] = {}
    for event in view.events_of(EventKind.UPLOAD):
        key = (event.detail or {}).get("key")
        if key and event.nbytes:
            data.setdefault(key, []).append(event)
    alike: dict[tuple[Places, Places], list[list[LedgerEvent]]] = {}
    for events in data.values():
        alike.setdefault((_sources(events), _targets(events)), []).append(events)
    found = [_data_copies(sources, targets, pieces) for (sources, targets), pieces in alike.items()]
    yield from sorted(found, key=lambda spread: -spread.held_nbytes)


def _sources(events: Sequence[LedgerEvent]) -> Places:
    return (*sorted({PAGE_LOCKED if (event.detail or {}).get("pinned") else HOST for event in events}),)


def _targets(events: Sequence[LedgerEvent]) -> Places:
    """Return one place per line that makes a copy."""
    copies = {(_target(event), event.api, event.line) for event in events}
    return (*sorted(target for target, *_ in copies),)


def _target(event: LedgerEvent) -> str:
    device = (event.detail or {}).get("device")
    return str(device) if is_device(device) else HOST


def _data_copies(sources: Places, targets: Places, pieces: Sequence[Sequence[LedgerEvent]]) -> DataCopies:
    largest = max((events[0] for events in pieces), key=lambda event: event.nbytes)
    return DataCopies(
        pieces=len(pieces),
        nbytes=_nbytes_before_upload(largest),
        places=sources + targets,
        held_nbytes=len(sources) * _nbytes_before_upload(largest) + len(targets) * largest.nbytes,
        different_nbytes=sum(_nbytes_before_upload(events[0]) for events in pieces),
        copied_nbytes=sum(event.nbytes for events in pieces for event in events),
    )


def _nbytes_before_upload(event: LedgerEvent) -> int:
    """Return the size before the conversion; lists and wider dtypes are larger."""
    before, after = (event.detail or {}).get("from_dtype"), dtype_bits((event.detail or {}).get("dtype"))
    if before in ("list", "tuple") and after:
        return event.nbytes * 8 // after[1] * PYTHON_NUMBER_NBYTES
    wide = dtype_bits(before)
    return event.nbytes * wide[1] // after[1] if wide and after else event.nbytes


def _constant_nbytes(event: LedgerEvent) -> int:
    return (event.detail or {}).get("constants_nbytes") or 0
