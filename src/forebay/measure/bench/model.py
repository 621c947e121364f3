"""The parts of a case: workload, entries, columns and targets; and how cases are selected."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

__all__ = [
    "Case",
    "Entry",
    "MeterName",
    "PerformanceTarget",
    "ResultColumn",
    "Skip",
    "StartEpoch",
    "Workload",
    "select_cases",
    "with_fewer_rows",
]

StartEpoch: TypeAlias = Callable[[], Iterable[Any]]  # each call returns the batches of one epoch, shuffled again
MeterName: TypeAlias = Literal[
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


class Skip(Exception):  # noqa: N818  not an error: the table shows the reason
    """Raised by a contender that cannot run this workload on this machine."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One number that is measured for every entry."""

    name: str
    unit: Literal["rows/s", "GB/s", "us", "ms", "MiB", "KiB", "x", "cores"]
    heading: str
    ratio: bool = False  # whether the table also shows the ratio to the baseline


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of a case. Every contender receives the same one."""

    rows: int
    shape: tuple[int, ...]
    batch: int
    dtype: str = "float32"
    path: str = ""  # the file to read, for cases that read files
    options: Mapping[str, Any] = field(default_factory=dict)  # options of the case, then those of the entry

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to run the workload: a contender and its options."""

    label: str
    contender: str
    options: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None  # rounds, where the entry is too slow for those of the run


@dataclass(frozen=True, slots=True)
class PerformanceTarget:
    """A value that Forebay must reach: an amount, or a ratio to another entry of the same run."""

    of: str
    column: str
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, and the entries that run it."""

    name: str
    title: str
    meaning: str  # one sentence that explains the numbers, printed below the table
    work: Workload
    meter: MeterName
    columns: tuple[ResultColumn, ...]
    entries: tuple[Entry, ...]
    baseline: str | None = None  # label of the entry that ratios refer to
    files: tuple[str, ...] = ()  # kinds of file to write before the run: npy, npz, sparse, disk
    targets: tuple[PerformanceTarget, ...] = ()
    timeout_seconds: float = 240.0  # for one reply of a contender; permuting a billion rows takes a minute


def select_cases(
    cases: Sequence[Case], *, case_names: Sequence[str] = (), contenders: Sequence[str] = ()
) -> list[Case]:
    """Select cases by name, and their entries by contender; without names, select all of them.

    Any part of a contender's name or label selects it: "torch", "tf.data", "forebay". The baseline of a case always
    stays, because ratios refer to it.
    """
    _check_names("case", case_names, [case.name for case in cases])
    _check_names("contender", contenders, [text for case in cases for text in map(_searched_text, case.entries)])
    named = [case for case in cases if not case_names or case.name in case_names]
    return [case for case in (_with_entries(case, contenders) for case in named) if case.entries]


def with_fewer_rows(case: Case, factor: int) -> Case:
    """Divide the rows of a case by `factor`, for a first impression that supports no claim."""
    rows = max(case.work.rows // factor, 4 * case.work.batch)
    if case.work.rows % case.work.batch == 0:  # keep every batch full
        rows -= rows % case.work.batch
    return replace(case, title=f"{case.title}; cut to {rows:,} rows", work=replace(case.work, rows=rows))


def _with_entries(case: Case, contenders: Sequence[str]) -> Case:
    if not any(_matches(entry, contenders) for entry in case.entries):
        return replace(case, entries=())
    entries = tuple(entry for entry in case.entries if entry.label == case.baseline or _matches(entry, contenders))
    return replace(case, entries=entries)


def _matches(entry: Entry, contenders: Sequence[str]) -> bool:
    return not contenders or any(wanted.lower() in _searched_text(entry) for wanted in contenders)


def _searched_text(entry: Entry) -> str:
    return f"{entry.contender} {entry.label}".lower()


def _check_names(kind: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if not any(name == text if kind == "case" else name.lower() in text for text in known):
            raise ValueError(f"no {kind} is called {name!r}. Run `forebay bench --list` to see the names.")
