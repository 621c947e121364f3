"""What a case is made of: the work, the ways to do it, the columns it is measured in, and what we promise."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

__all__ = ["Case", "Column", "Entry", "Meter", "Skip", "StartEpoch", "Target", "Work", "quicker"]

StartEpoch: TypeAlias = Callable[[], Iterable[Any]]  # each call gives one epoch of batches, freshly shuffled
Meter: TypeAlias = Literal[
    "throughput",
    "handoff",
    "first_batch",
    "memory",
    "disk",
    "device_throughput",
    "device_busy",
    "device_first_batch",
    "device_step",
    "keras_fit",
]


class Skip(Exception):  # noqa: N818  it is no error: the reason is shown in the table
    """Raised by a contender that cannot do this work on this machine."""


@dataclass(frozen=True, slots=True)
class Column:
    """One number of an entry."""

    name: str
    unit: Literal["rows/s", "GB/s", "us", "ms", "MiB", "KiB", "x", "cores"]
    heading: str
    ratio: bool = False  # whether the case's baseline is set beside it


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a case, as every contender gets it."""

    rows: int
    shape: tuple[int, ...]
    batch: int
    dtype: str = "float32"
    path: str = ""  # the file to read, where the case has one
    options: Mapping[str, Any] = field(default_factory=dict)  # what makes an entry differ from its neighbours

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to do the work: a contender, and how it is asked."""

    label: str
    contender: str
    options: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None  # fewer than the run's, where one takes very long


@dataclass(frozen=True, slots=True)
class Target:
    """What this project promises of one entry: an amount, or a ratio to another entry of the same run."""

    of: str
    column: str
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work and everybody who does it."""

    name: str
    title: str
    meaning: str  # one line in plain words, printed under the table
    work: Work
    meter: Meter
    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]
    baseline: str | None = None  # the label that ratios are taken to
    files: tuple[str, ...] = ()  # kinds of file that must be there before: npy, npz, sparse, disk
    targets: tuple[Target, ...] = ()
    timeout_seconds: float = 240.0  # of one answer of a contender; a permutation of a billion rows takes a minute


def quicker(case: Case, by: int) -> Case:
    """The same case with less data: for a first look, not for a claim."""
    rows = max(case.work.rows // by, 4 * case.work.batch)
    if case.work.rows % case.work.batch == 0:  # whole batches stay whole batches
        rows -= rows % case.work.batch
    return replace(case, title=f"{case.title}; cut to {rows:,} rows", work=replace(case.work, rows=rows))
