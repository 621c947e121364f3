"""A cure tried without touching the script: what one line of it calls is done in another way. Pure.

What the script computes in such a run is stale or wrong; only how long its steps take says something.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Emulation", "Way"]


class Way(StrEnum):
    """What is done in place of what the line asks for."""

    RESIDENT = "resident"
    REMEMBER = "remember"
    REUSE = "reuse"
    DEFER = "defer"
    SKIP = "skip"
    LOCK = "lock"
    NARROW = "narrow"
    AHEAD = "ahead"

    @property
    def in_words(self) -> str:
        return _IN_WORDS[self]


_IN_WORDS = {
    Way.RESIDENT: "one batch, kept on the device, in place of all others",
    Way.REMEMBER: "uploads of data that was uploaded before left out",
    Way.REUSE: "one upload in place of all those like it",
    Way.DEFER: "values read from the device once in a hundred times",
    Way.SKIP: "waits for the device left out",
    Way.LOCK: "uploads out of page-locked memory, without a wait",
    Way.NARROW: "uploads in 32 bits in place of 64",
    Way.AHEAD: "each upload made a step ahead, beside the computing",
}


@dataclass(frozen=True, slots=True)
class Emulation:
    """One way, on one line of the script."""

    way: Way
    file: str
    number: int
    every: int = 0  # each so-manieth call is made as it is written; with 0 only the first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Emulation":
        return cls(**values | {"way": Way(values["way"])})
