"""An emulation: a second run that imitates a cure on the target line.

The values that the script computes in this run are stale or wrong. Only the step time is meaningful.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Emulation", "EmulationKind", "FeedRows", "MeasuredSetting", "Verification"]


class EmulationKind(StrEnum):
    """How an emulation replaces calls on its target line."""

    RESIDENT = "resident"
    WORKERS = "workers"
    FEED = "feed"  # a feed makes the batches of a DataLoader
    REMEMBER = "remember"  # reuses uploads of equal data
    REUSE = "reuse"  # reuses uploads of the same shape and dtype
    DEFER = "defer"
    SKIP = "skip"
    LOCK = "lock"
    NARROW = "narrow"
    PREFETCH = "ahead"
    OFF = "off"
    APPLIED = "applied"  # runs a copy of the script with the code of the cure
    NOTHING = "nothing"

    @property
    def description(self) -> str:
        """The replacement as a clause for the report."""
        return _DESCRIPTIONS[self]


class FeedRows(StrEnum):
    """What the feed of an emulation reads."""

    BATCHES = "batches"  # the ready-made batches of the DataLoader
    SOURCE = "source"  # the dataset, row by row
    ARRAYS = "arrays"  # all rows of the dataset, which the script makes once


_DESCRIPTIONS = {
    EmulationKind.RESIDENT: "one batch, kept on the device, replaces all other batches, so no cure can be faster",
    EmulationKind.WORKERS: "each DataLoader has worker processes, which make the batches",
    EmulationKind.FEED: "a feed of Forebay makes the batches of each DataLoader on this line",
    EmulationKind.REMEMBER: "data that was uploaded before is not uploaded again",
    EmulationKind.REUSE: "one upload replaces all uploads of the same shape and type",
    EmulationKind.DEFER: "values are read back from the device once in 100 calls",
    EmulationKind.SKIP: "waits for the device are skipped",
    EmulationKind.LOCK: "uploads come from page-locked memory and do not wait",
    EmulationKind.NARROW: "uploads use 32-bit numbers instead of 64-bit numbers",
    EmulationKind.PREFETCH: "each upload starts one step early and overlaps with computing",
    EmulationKind.OFF: "the setting is off",
    EmulationKind.APPLIED: "the code of the cure runs in a copy of the script, which ends after enough steps",
    EmulationKind.NOTHING: "nothing is replaced, so that steps with the setting are timed in the same way",
}


@dataclass(frozen=True, slots=True)
class Emulation:
    """A kind of emulation and its target line."""

    kind: EmulationKind
    file: str
    number: int  # of the target line in `file`
    # The first call and every `every`-th call run without the replacement. 0: only the first call does. This number
    # applies to REMEMBER, REUSE, DEFER, SKIP and the uploads of RESIDENT. Other replacements ignore it.
    every: int = 0
    workers: int = 0  # for WORKERS: worker processes of each DataLoader
    setting: str = ""  # for OFF: a debug setting, an environment variable, or the API name of a callback
    rows: str = ""  # for FEED: a value of `FeedRows`
    code: str = ""  # for APPLIED: the code of the cure; `number` is the line that ends a step

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Emulation":
        return cls(**values | {"kind": EmulationKind(values["kind"])})


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The result of running the script again without a debug setting."""

    title: str  # of the finding about the setting
    saved: tuple[float, float] | None = None  # seconds by which a step is shorter, least and most
    trouble: str = ""  # why there is no measurement; empty if it succeeded


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of running the script again with the main cure emulated."""

    kind: EmulationKind | None = None  # None if the script did not run again
    predicted: tuple[float, float] | None = None  # step time with the cure in seconds, shortest and longest
    measured: float | None = None  # step time in seconds; None if there is no measurement
    trouble: str = ""  # why there is no measurement; empty if it succeeded
    settings: tuple[MeasuredSetting, ...] = ()  # for findings whose cost only a second run shows
