"""The comparison of two runs: step time, parts of a step, and findings."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.doctor.diagnosis.diagnose import LEAST_SHARE, SEVERE_SHARE
from forebay.doctor.report.document import SCHEMA_VERSION
from forebay.errors import CaptureError

__all__ = ["Comparison", "TimeChange", "compare", "read_document"]

Document = dict[str, Any]
_REQUIRED_KEYS = {
    "schema_version",
    "step_seconds",
    "step_quartiles",
    "parts_seconds",
    "findings",
    "machine",
    "versions",
}
_HINT = "Write one with `forebay doctor --json FILE train.py`."
_SLOWER_SHARES = {
    "moderate": LEAST_SHARE,
    "severe": SEVERE_SHARE,
}  # share of a step by which it must be slower to fail --fail-on
_AT_LEAST_AS_SEVERE = {"moderate": ("moderate", "severe"), "severe": ("severe",)}


@dataclass(frozen=True, slots=True)
class TimeChange:
    """A time before and after; None if a run has no such part."""

    name: str
    before: float | None
    after: float | None

    @property
    def seconds(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two runs; findings are as in the JSON documents."""

    before: Document
    after: Document
    step: TimeChange
    parts: tuple[TimeChange, ...]  # largest change first
    resolved: tuple[Document, ...]
    new: tuple[Document, ...]
    remaining: tuple[tuple[Document, Document], ...]
    differences: tuple[str, ...]  # in machine and versions; they too may explain a change

    @property
    def times(self) -> float:
        """Return how many times as fast the second run is."""
        return float(self.before["step_seconds"] / self.after["step_seconds"])

    @property
    def is_significant(self) -> bool:
        """Whether the interquartile ranges of the step times do not overlap."""
        before, after = self.before["step_quartiles"], self.after["step_quartiles"]
        return not before or not after or before[1] < after[0] or after[1] < before[0]

    def is_worse(self, severity: str) -> bool:
        """Whether a finding of this severity is new, or steps are slower by as much."""
        if any(finding["severity"] in _AT_LEAST_AS_SEVERE[severity] for finding in self.new):
            return True
        return self.is_significant and 1 / self.times - 1 >= _SLOWER_SHARES[severity]


def read_document(path: str | Path) -> Document:
    """Read a document that `--json` wrote."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path} cannot be read as a document of the doctor: {error}. {_HINT}") from error
    if not isinstance(document, dict) or not document.keys() >= _REQUIRED_KEYS:
        raise CaptureError(f"{path} is JSON, but not a document of the doctor. {_HINT}")
    if document["schema_version"] != SCHEMA_VERSION:
        version = document["schema_version"]
        raise CaptureError(
            f"{path} has schema version {version}; only version {SCHEMA_VERSION} can be compared. {_HINT}"
        )
    if not document["step_seconds"]:
        raise CaptureError(f"the doctor found no step in the run of {path}. Let the script run for more steps.")
    return document


def compare(before: Document, after: Document) -> Comparison:
    remaining, resolved, new = _pair_findings(before["findings"], after["findings"])
    return Comparison(
        before,
        after,
        TimeChange("a step", before["step_seconds"], after["step_seconds"]),
        _part_changes(before["parts_seconds"], after["parts_seconds"]),
        tuple(resolved),
        tuple(new),
        tuple(remaining),
        tuple(_environment_differences(before, after)),
    )


def _part_changes(before: dict[str, float], after: dict[str, float]) -> tuple[TimeChange, ...]:
    changes = [TimeChange(name, before.get(name), after.get(name)) for name in before | after]
    return tuple(sorted(changes, key=lambda change: -abs(change.seconds)))


def _pair_findings(
    before: Iterable[Document], after: Iterable[Document]
) -> tuple[list[tuple[Document, Document]], list[Document], list[Document]]:
    """Pair findings with the same rule and source text, then those with the same rule only.

    Lines move and are rewritten between two runs.
    """
    unmatched, added = list(before), list(after)
    remaining: list[tuple[Document, Document]] = []
    for same in (_has_same_text, _has_same_rule):
        for old in list(unmatched):
            match = next((found for found in added if same(old, found)), None)
            if match is not None:
                remaining.append((old, match))
                unmatched.remove(old)
                added.remove(match)
    return remaining, unmatched, added


def _has_same_rule(one: Document, other: Document) -> bool:
    return bool(one["rule"] == other["rule"])


def _has_same_text(one: Document, other: Document) -> bool:
    return _has_same_rule(one, other) and _line_identity(one) == _line_identity(other)


def _line_identity(finding: Document) -> Any:
    """Return the source text of the finding's line; with --no-source, its file and number."""
    return finding["text"] or (finding["file"], finding["line"])


def _environment_differences(before: Document, after: Document) -> Iterable[str]:
    old_gpus, new_gpus = (", ".join(gpu["name"] for gpu in each.get("gpus", ())) for each in (before, after))
    if old_gpus != new_gpus:
        yield f"GPU {old_gpus or 'unknown'} before, {new_gpus or 'unknown'} after"
    for what in ("machine", "versions"):
        for name in before[what] | after[what]:
            old, new = before[what].get(name), after[what].get(name)
            if old != new:
                yield f"{name} {'none' if old is None else old} before, {'none' if new is None else new} after"
