"""The comparison of two runs: step time, parts of a step, and findings."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.core.json_checks import (
    any_value,
    integer,
    list_of,
    mapping_of,
    number,
    optional,
    parse_json,
    read_bounded,
    record,
    row,
    text,
)
from forebay.doctor.analyse.phases import PHASES
from forebay.doctor.analyse.steps import REST
from forebay.doctor.diagnosis.diagnose import MIN_SHARE, RUN_RULES, SEVERE_SHARE
from forebay.doctor.report.document import SCHEMA_VERSION
from forebay.doctor.report.side_notes import cores_of_other_programs
from forebay.errors import CaptureError

__all__ = ["Comparison", "TimeChange", "compare", "read_document"]

Document = dict[str, Any]  # a JSON document of the doctor, or a finding in it
_REQUIRED_KEYS = {
    "schema_version",
    "step_seconds",
    "step_quartiles",
    "parts_seconds",
    "findings",
    "machine",
    "versions",
}
MAX_NBYTES = 64 << 20  # of a document; one with 1,000 findings has 3 MB
_SECONDS = number(0, 1e10)
_FINDING = record(
    {
        "rule": text,
        "severity": text,
        "title": text,
        "seconds_per_step": _SECONDS,
        "file": optional(text),
        "line": optional(integer()),
        "text": optional(text),
    }
)
_DOCUMENT = record(
    {
        "step_seconds": number(1e-12, 1e10),
        "step_quartiles": optional(row(_SECONDS, _SECONDS)),
        "parts_seconds": mapping_of(_SECONDS),
        "findings": list_of(_FINDING, max_length=1000),
        "machine": mapping_of(any_value),
        "versions": mapping_of(any_value),
    },
    {
        "script": text,
        "mean_step_seconds": optional(_SECONDS),
        "gpus": list_of(record({"name": text}), max_length=1000),
        "facts": mapping_of(any_value),
    },
)
_HINT = "Write a document with `forebay doctor --json FILE train.py`."
# Value of the option --fail-on -> the second run is worse if its steps are longer by this share or more.
_SLOWER_SHARES = {"moderate": MIN_SHARE, "severe": SEVERE_SHARE}
_AT_LEAST_AS_SEVERE = {"moderate": ("moderate", "severe"), "severe": ("severe",)}


@dataclass(frozen=True, slots=True)
class TimeChange:
    """The seconds of a step, or of one of its parts, in both runs."""

    name: str  # of the part, or "a step"
    before: float | None  # seconds in the first run; None if this run has no such part
    after: float | None  # seconds in the second run; None if this run has no such part

    @property
    def seconds(self) -> float:
        """The seconds of the second run minus those of the first run."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two runs. Findings have the form of the JSON documents."""

    before: Document
    after: Document
    step: TimeChange
    parts: tuple[TimeChange, ...]  # largest change first
    resolved: tuple[Document, ...]  # findings of the first run only
    new: tuple[Document, ...]  # findings of the second run only
    remaining: tuple[tuple[Document, Document], ...]  # findings of both runs: in the first run, and in the second
    differences: tuple[str, ...]  # phrases about different machines or package versions, which may explain a change

    @property
    def speedup(self) -> float:
        """Step time of the first run divided by that of the second run."""
        return float(self.before["step_seconds"] / self.after["step_seconds"])

    @property
    def mean_step(self) -> TimeChange | None:
        """The mean step times, if a finding is of RUN_RULES; else None.

        The result is also None if a document has no mean step time.
        """
        before, after = (document.get("mean_step_seconds") for document in (self.before, self.after))
        findings = (*self.before["findings"], *self.after["findings"])
        if not before or not after or not any(finding["rule"] in RUN_RULES for finding in findings):
            return None
        return TimeChange("the mean of all steps", before, after)

    @property
    def other_programs(self) -> tuple[str, str]:
        """The cores that other programs used in each run, such as "1.5 of 2 cores".

        A text is "" if these are few cores, or if their number is unknown. It is unknown without `worker_cores`,
        because the worker processes of the script may be among the other programs.
        """
        before, after = (
            "" if facts.get("worker_cores") is None else cores_of_other_programs(facts, document["machine"])
            for document in (self.before, self.after)
            for facts in [document.get("facts") or {}]
        )
        return before, after

    @property
    def is_significant(self) -> bool:
        """Whether the interquartile ranges of the step times do not overlap, or are unknown."""
        before, after = self.before["step_quartiles"], self.after["step_quartiles"]
        return not before or not after or before[1] < after[0] or after[1] < before[0]

    def is_worse(self, severity: str) -> bool:
        """Whether a finding of at least this severity is new, or steps are longer.

        Steps count as longer if the difference is significant and reaches `_SLOWER_SHARES`.
        """
        if any(finding["severity"] in _AT_LEAST_AS_SEVERE[severity] for finding in self.new):
            return True
        return self.is_significant and 1 / self.speedup - 1 >= _SLOWER_SHARES[severity]


def read_document(path: str | Path) -> Document:
    """Read and validate a document that `--json` wrote."""
    try:
        document = parse_json(read_bounded(path, max_nbytes=MAX_NBYTES))
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}. {_HINT}") from error
    except ValueError as error:
        raise CaptureError(f"{path} is no JSON document of forebay doctor: {error}. {_HINT}") from error
    return validate_document(document, path)


def validate_document(document: Any, path: str | Path) -> Document:
    """Return a document that can be compared; raise CaptureError for any other JSON value."""
    if not isinstance(document, dict) or not document.keys() >= _REQUIRED_KEYS:
        raise CaptureError(f"{path} is JSON, but not a document of the doctor. {_HINT}")
    if document["schema_version"] != SCHEMA_VERSION:
        version = document["schema_version"]
        raise CaptureError(
            f"{path} has schema version {version}; only version {SCHEMA_VERSION} can be compared. {_HINT}"
        )
    if not document["step_seconds"]:
        raise CaptureError(f"the doctor found no step in the run of {path}. Let the script run for more steps.")
    try:
        _DOCUMENT(document, "the document")
    except ValueError as error:
        raise CaptureError(f"{path} is damaged: {error}. {_HINT}") from error
    return dict(document)


def compare(before: Document, after: Document) -> Comparison:
    """Compare the documents of two runs."""
    remaining, resolved, new = _pair_findings(before["findings"], after["findings"])
    return Comparison(
        before,
        after,
        TimeChange("a step", before["step_seconds"], after["step_seconds"]),
        _part_changes(_scaled_parts(before), _scaled_parts(after)),
        tuple(resolved),
        tuple(new),
        tuple(remaining),
        tuple(_environment_differences(before, after)),
    )


def _scaled_parts(document: Document) -> dict[str, float]:
    """Return the parts of a step, scaled so that they add up to `step_seconds`.

    The parts in documents of version 0.1 may have a different sum.
    """
    parts: dict[str, float] = document["parts_seconds"]
    total = sum(parts.values())
    return {name: seconds * document["step_seconds"] / total for name, seconds in parts.items()} if total else parts


def _part_changes(before: dict[str, float], after: dict[str, float]) -> tuple[TimeChange, ...]:
    # Only runs with enough samples have phases. Compare phases only if both runs have some.
    if before.keys().isdisjoint(PHASES) != after.keys().isdisjoint(PHASES):
        before, after = _without_phases(before), _without_phases(after)
    changes = [TimeChange(name, before.get(name), after.get(name)) for name in before | after]
    return tuple(sorted(changes, key=lambda change: -abs(change.seconds)))


def _without_phases(parts: dict[str, float]) -> dict[str, float]:
    """Return the parts of a step with its phases as a part of REST."""
    rest = sum(seconds for name, seconds in parts.items() if name in (*PHASES, REST))
    return {name: seconds for name, seconds in parts.items() if name not in PHASES} | {REST: rest}


def _pair_findings(
    before: Iterable[Document], after: Iterable[Document]
) -> tuple[list[tuple[Document, Document]], list[Document], list[Document]]:
    """Return the remaining findings in pairs, the resolved findings and the new findings.

    First pair findings with the same rule and source text, and then remaining findings with the same rule. Compare line
    numbers only if there is no source text (--no-source), because lines move when the user edits the script.
    """
    resolved, new = list(before), list(after)
    remaining: list[tuple[Document, Document]] = []
    for is_same in (_has_same_text, _has_same_rule):
        for old in list(resolved):
            match = next((finding for finding in new if is_same(old, finding)), None)
            if match is not None:
                remaining.append((old, match))
                resolved.remove(old)
                new.remove(match)
    return remaining, resolved, new


def _has_same_rule(one: Document, other: Document) -> bool:
    return bool(one["rule"] == other["rule"])


def _has_same_text(one: Document, other: Document) -> bool:
    return _has_same_rule(one, other) and _line_identity(one) == _line_identity(other)


def _line_identity(finding: Document) -> Any:
    """Return the source text of the finding's line, or its file and number without text."""
    return finding["text"] or (finding["file"], finding["line"])


def _environment_differences(before: Document, after: Document) -> Iterable[str]:
    old_gpus, new_gpus = (", ".join(gpu["name"] for gpu in document.get("gpus", ())) for document in (before, after))
    if old_gpus != new_gpus:
        yield f"GPU {old_gpus or 'unknown'} before, {new_gpus or 'unknown'} after"
    for section in ("machine", "versions"):
        for name in before[section] | after[section]:
            old, new = before[section].get(name), after[section].get(name)
            if old != new:
                yield f"{name} {'none' if old is None else old} before, {'none' if new is None else new} after"
