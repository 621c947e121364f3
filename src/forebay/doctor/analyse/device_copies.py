"""Copies of the device's, told by line, direction and memory: how often a step, how many bytes, how long. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.doctor.model.device_records import ASYNC, CopyKind, MemoryKind

__all__ = ["DIRECTIONS", "Copies", "copies_of"]

DIRECTIONS: dict[int, str] = {
    CopyKind.HOST_TO_DEVICE: "host to device",
    CopyKind.DEVICE_TO_HOST: "device to host",
    CopyKind.DEVICE_TO_DEVICE: "device to device",
}


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one line that are alike, in a mean step."""

    line: int  # as events count them; -1 where nobody's
    direction: str  # host to device, device to host, device to device
    pageable: bool  # the host's side is ordinary memory
    asynchronous: bool  # asked for without waiting; from pageable memory it waits all the same
    per_step: float
    nbytes: float
    seconds: float  # of the device's copying


def copies_of(operations: Any, lines: Any, places: Any, steps: int) -> tuple[Copies, ...]:
    """Those at these places, grouped; the longest first."""
    groups: dict[tuple[int, str, bool, bool], list[int]] = {}
    for place in places.tolist():
        groups.setdefault(_alike(operations[place], int(lines[place])), []).append(place)
    found = [_copies(key, operations[np.array(same)], steps) for key, same in groups.items()]
    return tuple(sorted(found, key=lambda copies: -copies.seconds))


def _alike(copy: Any, line: int) -> tuple[int, str, bool, bool]:
    direction = DIRECTIONS.get(int(copy["what"]), "elsewhere")
    host = copy["target"] if direction == "device to host" else copy["source"]
    return line, direction, bool(host == MemoryKind.PAGEABLE), bool(copy["flags"] & ASYNC)


def _copies(key: tuple[int, str, bool, bool], found: Any, steps: int) -> Copies:
    lasted = float((found["end"].astype(np.int64) - found["start"].astype(np.int64)).sum()) / 1e9
    return Copies(*key, len(found) / steps, float(found["nbytes"].sum()) / steps, lasted / steps)
