"""The memory ledger: data that lies in several places, arrays inside graphs, how full host and devices were. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.framework import bits_of, is_device
from forebay.doctor.model.events import Event, Kind, Line

__all__ = ["HOST", "PAGE_LOCKED", "Embedded", "Level", "Memory", "Spread", "embedded_in", "levels_of", "memory_of"]

HOST, PAGE_LOCKED = "host", "page-locked"
Places = tuple[str, ...]

PYTHON_NUMBER_NBYTES = 32  # in a list: the object, and the place that refers to it


@dataclass(frozen=True, slots=True)
class Spread:
    """Data that lies in the same places: what it takes there, and what was copied to get it there."""

    pieces: int  # arrays that differ
    nbytes: int  # of the largest, as the script has it
    places: Places  # where a piece lies at once; named twice where it lies there twice
    held_nbytes: int  # of the largest, in all places together
    different_nbytes: int  # of all pieces, each once
    copied_nbytes: int  # by all calls together


@dataclass(frozen=True, slots=True)
class Embedded:
    """Arrays that one line puts into graphs as constants."""

    api: str
    line: Line | None
    nbytes: int  # the most in one graph
    times: int  # graphs that hold them
    total_nbytes: int
    seconds: float  # to make the largest of those graphs


@dataclass(frozen=True, slots=True)
class Level:
    """How full one memory was; None where nobody tells."""

    place: str  # host, page-locked, or a device
    framework: str | None
    used_nbytes: int | None  # at the last reading of a steady loop
    reserved_nbytes: int | None  # by the framework, for whoever asks next
    peak_nbytes: int | None
    total_nbytes: int | None
    growth_nbytes: float  # a step, where it grew all the time; 0 where it did not

    @property
    def share(self) -> float:
        """Of all there is, at the peak; 0 where either is not known."""
        return (self.peak_nbytes or 0) / self.total_nbytes if self.total_nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    levels: tuple[Level, ...]
    spreads: tuple[Spread, ...]  # what takes most beside its first copy comes first
    embedded: tuple[Embedded, ...]


def memory_of(case: Case) -> Memory:
    return Memory((*levels_of(case),), (*_spreads(case),), (*embedded_in(case),))


def levels_of(case: Case) -> Iterator[Level]:
    """The host first."""
    readings = _readings(case)
    if readings:
        yield from _host(case, readings)
    devices = {(told["framework"], told["device"]): None for reading in readings for told in reading["devices"]}
    for framework, device in devices:
        told = [_of(reading, framework, device) for reading in readings]
        last = next(found for found in reversed(told) if found)
        yield Level(
            place=device,
            framework=framework,
            used_nbytes=_steady(readings, told).get("used_nbytes"),
            reserved_nbytes=last.get("reserved_nbytes"),
            peak_nbytes=last.get("peak_nbytes") or last.get("reserved_nbytes"),
            total_nbytes=last.get("total_nbytes") or _total(case, device),
            growth_nbytes=_growth([(r["steps"], t["used_nbytes"]) for r, t in zip(readings, told, strict=True) if t]),
        )


def embedded_in(case: Case) -> Iterator[Embedded]:
    """By line, the most bytes first."""
    lines: dict[tuple[str, int], list[Event]] = {}
    for event in case.events(Kind.BUILD, Kind.COMPILE):
        if _constants(event):
            lines.setdefault((event.api, event.line), []).append(event)
    for same in sorted(lines.values(), key=lambda events: -sum(map(_constants, events))):
        largest = max(same, key=_constants)
        total = sum(map(_constants, same))
        yield Embedded(largest.api, case.line(largest.line), _constants(largest), len(same), total, largest.seconds)


def _readings(case: Case) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = case.capture.facts.get("memory") or []
    return found


def _host(case: Case, readings: Sequence[dict[str, Any]]) -> Iterator[Level]:
    """Without what is mapped from files, which the system takes back when it needs room."""
    last = readings[-1]
    mapped = max(reading.get("mapped_nbytes") or 0 for reading in readings)
    peak, own = last.get("host_peak_nbytes"), [reading.get("host_nbytes") or 0 for reading in readings]
    least = None if peak is None else max(0, peak - mapped, *own)
    used, total = _steady(readings, readings).get("host_nbytes"), case.capture.machine.get("memory_nbytes")
    yield Level(HOST, None, used, None, least, total, 0.0)
    if last.get("pinned_nbytes") or last.get("pinned_peak_nbytes"):
        used, peak = last.get("pinned_nbytes"), last.get("pinned_peak_nbytes")
        yield Level(PAGE_LOCKED, "torch", used, None, peak, total, 0.0)


def _steady(readings: Sequence[dict[str, Any]], told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was told while the loop ran; at the end where there was no such reading."""
    steady = [found for reading, found in zip(readings, told, strict=True) if reading["steps"] and found]
    return steady[0] if steady else told[-1]


def _of(reading: dict[str, Any], framework: str, device: str) -> dict[str, Any]:
    same = [told for told in reading["devices"] if (told["framework"], told["device"]) == (framework, device)]
    return same[0] if same else {}


def _growth(points: Sequence[tuple[int, int]]) -> float:
    """Bytes a step between readings of the loop, where every one of them is larger than the one before."""
    inside = [(steps, used) for steps, used in points if steps]
    rates = [(more - used) / (later - steps) for (steps, used), (later, more) in pairwise(inside) if later > steps]
    return min(rates) if len(rates) > 1 and min(rates) > 0 else 0.0


def _total(case: Case, device: str) -> int | None:
    """Of the GPU of that number, as its driver says."""
    number = device.rpartition(":")[2]
    gauges = case.capture.facts.get("gauges") or []
    known = number.isdigit() and int(number) < len(gauges)
    return gauges[int(number)].get("total_nbytes") if known else None


def _spreads(case: Case) -> Iterator[Spread]:
    """Uploads by the data they upload, and data by the places it comes to lie in."""
    data: dict[str, list[Event]] = {}
    for event in case.events(Kind.UPLOAD):
        key = (event.detail or {}).get("key")
        if key and event.nbytes:
            data.setdefault(key, []).append(event)
    alike: dict[tuple[Places, Places], list[list[Event]]] = {}
    for events in data.values():
        alike.setdefault((_sources(events), _targets(events)), []).append(events)
    found = [_spread(sources, targets, pieces) for (sources, targets), pieces in alike.items()]
    yield from sorted(found, key=lambda spread: -spread.held_nbytes)


def _sources(events: Sequence[Event]) -> Places:
    return (*sorted({PAGE_LOCKED if (event.detail or {}).get("pinned") else HOST for event in events}),)


def _targets(events: Sequence[Event]) -> Places:
    """A place for each line that makes a copy."""
    copies = {(_target(event), event.api, event.line) for event in events}
    return (*sorted(target for target, *_ in copies),)


def _target(event: Event) -> str:
    device = (event.detail or {}).get("device")
    return str(device) if is_device(device) else HOST


def _spread(sources: Places, targets: Places, pieces: Sequence[Sequence[Event]]) -> Spread:
    largest = max((events[0] for events in pieces), key=lambda event: event.nbytes)
    return Spread(
        pieces=len(pieces),
        nbytes=_source_nbytes(largest),
        places=sources + targets,
        held_nbytes=len(sources) * _source_nbytes(largest) + len(targets) * largest.nbytes,
        different_nbytes=sum(_source_nbytes(events[0]) for events in pieces),
        copied_nbytes=sum(event.nbytes for events in pieces for event in events),
    )


def _source_nbytes(event: Event) -> int:
    """As it was before: NumPy's doubles are twice what arrives as floats, Python's lists many times that."""
    before, after = (event.detail or {}).get("from_dtype"), bits_of((event.detail or {}).get("dtype"))
    if before in ("list", "tuple") and after:
        return event.nbytes * 8 // after[1] * PYTHON_NUMBER_NBYTES
    wide = bits_of(before)
    return event.nbytes * wide[1] // after[1] if wide and after else event.nbytes


def _constants(event: Event) -> int:
    return (event.detail or {}).get("constants_nbytes") or 0
