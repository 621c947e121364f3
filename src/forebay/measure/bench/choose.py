"""Which cases and entries take part: all of them, or those whose names were asked for."""

from collections.abc import Sequence
from dataclasses import replace

from forebay.measure.bench.model import Case, Entry

__all__ = ["choose"]


def choose(cases: Sequence[Case], *, case_names: Sequence[str] = (), contenders: Sequence[str] = ()) -> list[Case]:
    """The cases of these names with the entries of these contenders; a baseline stays, since ratios need it.

    A contender is named by any part of its name or its label: "torch", "tf.data", "forebay".
    """
    _refuse_unknown("case", case_names, [case.name for case in cases])
    _refuse_unknown("contender", contenders, [text for case in cases for text in map(_names, case.entries)])
    kept = [case for case in cases if not case_names or case.name in case_names]
    return [part for part in (_with_entries(case, contenders) for case in kept) if part.entries]


def _with_entries(case: Case, contenders: Sequence[str]) -> Case:
    if not any(_matches(entry, contenders) for entry in case.entries):
        return replace(case, entries=())
    entries = tuple(entry for entry in case.entries if entry.label == case.baseline or _matches(entry, contenders))
    return replace(case, entries=entries)


def _matches(entry: Entry, contenders: Sequence[str]) -> bool:
    return not contenders or any(wanted.lower() in _names(entry) for wanted in contenders)


def _names(entry: Entry) -> str:
    return f"{entry.contender} {entry.label}".lower()


def _refuse_unknown(what: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if not any(name == text if what == "case" else name.lower() in text for text in known):
            raise ValueError(f"no {what} is called {name!r}: see `forebay bench --list`.")
