"""The data classes that describe a bench case, and functions that select and shorten cases."""

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


class Skip(Exception):  # noqa: N818  not an error: the entry is skipped, and the table shows the reason
    """Raised by a contender that cannot run this workload on this machine."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One number that is measured for every entry."""

    name: str  # key in the results and in targets
    unit: Literal["rows/s", "GB/s", "us", "ms", "MiB", "KiB", "x", "cores"]
    heading: str  # text above the column in the table
    ratio: bool = False  # whether the table also shows the ratio to the baseline


@dataclass(frozen=True, slots=True)
class Workload:
    """The data that all contenders of a case load."""

    rows: int
    shape: tuple[int, ...]
    batch: int  # rows per batch
    dtype: str = "float32"
    path: str = ""  # the file to read, for cases that read files
    options: Mapping[str, Any] = field(default_factory=dict)  # of the case; in a run, those of the entry override them

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to run the workload: a contender and its options."""

    label: str  # name of the row in the table
    contender: str  # name of the contender function
    options: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None  # measured rounds of a slow entry; None: as many as the run has


@dataclass(frozen=True, slots=True)
class PerformanceTarget:
    """A limit for a result of Forebay, or for its ratio to another entry."""

    of: str  # label of the entry that must reach the target
    column: str  # name of the result column
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None  # label of the entry that the value is divided by; None: no ratio


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, and the entries that run it."""

    name: str
    title: str
    meaning: str  # explains the numbers; printed below the table
    work: Workload
    meter: MeterName
    columns: tuple[ResultColumn, ...]
    entries: tuple[Entry, ...]
    baseline: str | None = None  # label of the entry that ratios refer to
    files: tuple[str, ...] = ()  # kinds of file to write before the run: npy, npz, sparse, disk
    targets: tuple[PerformanceTarget, ...] = ()
    timeout_seconds: float = 240.0  # per request to a contender process; permuting a billion rows takes 60 s


def select_cases(
    cases: Sequence[Case], *, case_names: Sequence[str] = (), contenders: Sequence[str] = ()
) -> list[Case]:
    """Select cases by name, and their entries by contender.

    Empty `case_names` or `contenders` select all. An entry is selected if its label or the name of its contender
    contains one of `contenders`, such as "torch" or "tf.data". A selected case keeps its baseline, because ratios refer
    to it.
    """
    _check_names("case", case_names, [case.name for case in cases])
    _check_names("contender", contenders, [text for case in cases for text in map(_searched_text, case.entries)])
    named = [case for case in cases if not case_names or case.name in case_names]
    return [case for case in (_with_entries(case, contenders) for case in named) if case.entries]


def with_fewer_rows(case: Case, factor: int) -> Case:
    """Divide the number of rows of a case by `factor`, for a quick run.

    At least four batches remain. The results are only a first impression: do not publish them.
    """
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
