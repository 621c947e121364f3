"""The data classes of a bench case, and functions that select or reduce cases."""

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

StartEpoch: TypeAlias = Callable[[], Iterable[Any]]  # each call returns the batches of the next epoch
MeterName: TypeAlias = Literal[
    "throughput",
    "padded_rows",
    "handoff",
    "first_batch",
    "later_first_batch",
    "memory",
    "disk",
    "device_throughput",
    "device_busy",
    "device_first_batch",
    "device_step",
    "keras_fit",
    "packing",
]


class Skip(Exception):  # noqa: N818  not an error
    """A contender cannot run this workload on this machine. The table shows the reason."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """One column of the table: a number that is measured for every entry."""

    name: str  # key in the results and in targets
    unit: Literal["rows/s", "GB/s", "us", "ms", "MiB", "KiB", "x", "%", "cores"]
    heading: str  # text above the column in the table
    ratio: bool = False  # whether the table also shows the ratio to the baseline


@dataclass(frozen=True, slots=True)
class Workload:
    """The data that all contenders of a case load."""

    rows: int
    shape: tuple[int, ...]  # of one row
    batch: int  # rows per batch
    dtype: str = "float32"
    path: str = ""  # the file to read, for entries that read files
    # Options of all entries. An entry adds its own options, which take precedence.
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        return -(-self.rows // self.batch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to run the workload: a contender and its options."""

    label: str  # name of the row in the table
    contender: str  # name of the contender function
    options: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None  # rounds in which a slow entry is measured; None means all rounds


@dataclass(frozen=True, slots=True)
class PerformanceTarget:
    """A limit for the median of an entry, or for the ratio of two entries."""

    of: str  # label of the entry that must reach the target
    column: str  # name of the result column
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None  # label of the entry to divide by; None means that the target is no ratio


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
    files: tuple[str, ...] = ()  # kinds of file to write before the run; `data.write_file` explains them
    targets: tuple[PerformanceTarget, ...] = ()
    # Time limit for each reply of a contender process. The slowest contender needs 60 s to permute a billion rows.
    timeout_seconds: float = 240.0


def select_cases(
    cases: Sequence[Case], *, case_names: Sequence[str] = (), contenders: Sequence[str] = ()
) -> list[Case]:
    """Select cases by name, and their entries by contender.

    Empty `case_names` or `contenders` select all. An entry is selected if its label or the name of its contender
    contains one of `contenders`, such as "torch" or "tf.data". Omit cases without a selected entry. All other cases
    keep their baseline, because ratios refer to it.
    """
    _check_names("case", case_names, [case.name for case in cases])
    _check_names("contender", contenders, [text for case in cases for text in map(_searched_text, case.entries)])
    selected = [case for case in cases if not case_names or case.name in case_names]
    return [case for case in (_with_entries(case, contenders) for case in selected) if case.entries]


def with_fewer_rows(case: Case, factor: int) -> Case:
    """Return the case with its number of rows divided by `factor`, for a quick run.

    At least four batches remain. With so few rows, the results are not precise, so do not publish them.
    """
    rows = max(case.work.rows // factor, 4 * case.work.batch)
    if case.work.rows % case.work.batch == 0:  # keep every batch full
        rows -= rows % case.work.batch
    return replace(case, title=f"{case.title}; cut to {rows:,} rows", work=replace(case.work, rows=rows))


def _with_entries(case: Case, contenders: Sequence[str]) -> Case:
    """Return the case with only the matching entries and the baseline.

    If none matches, it has no entries.
    """
    if not any(_matches(entry, contenders) for entry in case.entries):
        return replace(case, entries=())
    entries = tuple(entry for entry in case.entries if entry.label == case.baseline or _matches(entry, contenders))
    return replace(case, entries=entries)


def _matches(entry: Entry, contenders: Sequence[str]) -> bool:
    return not contenders or any(name.lower() in _searched_text(entry) for name in contenders)


def _searched_text(entry: Entry) -> str:
    return f"{entry.contender} {entry.label}".lower()


def _check_names(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise an error for a name that selects no case or contender.

    A case needs its full name. For a contender, a part of the name or label is enough.
    """
    for name in names:
        if not any(name == text if kind == "case" else name.lower() in text for text in known):
            raise ValueError(f"no {kind} is called {name!r}. Run `forebay bench --list` to see the names.")
