"""Two verdicts side by side: what became of a step and its parts, which findings went, came and stayed. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.doctor.diagnosis.diagnose import SEVERE, WORTH_TELLING
from forebay.doctor.report.document import SCHEMA_VERSION
from forebay.errors import CaptureError

__all__ = ["Change", "Comparison", "compare", "read_document"]

Document = dict[str, Any]
_NEEDED = {"schema_version", "step_seconds", "step_quartiles", "parts_seconds", "findings", "machine", "versions"}
_WRITE_ONE = "Write one with `forebay doctor --json FILE train.py`."
_SLOWER = {"moderate": WORTH_TELLING, "severe": SEVERE}  # by which share of a step, to be as bad as a finding
_AS_BAD = {"moderate": ("moderate", "severe"), "severe": ("severe",)}


@dataclass(frozen=True, slots=True)
class Change:
    """A time before and after; None where a run has no such part."""

    name: str
    before: float | None
    after: float | None

    @property
    def seconds(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is different; findings are as documents have them."""

    before: Document
    after: Document
    step: Change
    parts: tuple[Change, ...]  # those that changed most first
    went: tuple[Document, ...]
    came: tuple[Document, ...]
    stayed: tuple[tuple[Document, Document], ...]
    otherwise: tuple[str, ...]  # what else differs: then times may differ for that reason

    @property
    def times(self) -> float:
        """How many times as fast a step is."""
        return float(self.before["step_seconds"] / self.after["step_seconds"])

    @property
    def certain(self) -> bool:
        """Whether the steps of the two runs lie apart, by their quartiles."""
        before, after = self.before["step_quartiles"], self.after["step_quartiles"]
        return not before or not after or before[1] < after[0] or after[1] < before[0]

    def worse(self, severity: str) -> bool:
        """Whether a finding as bad as this came, or a step is slower by as much as such a finding costs."""
        if any(finding["severity"] in _AS_BAD[severity] for finding in self.came):
            return True
        return self.certain and 1 / self.times - 1 >= _SLOWER[severity]


def read_document(path: str | Path) -> Document:
    """Read what `--json` wrote."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path} cannot be read as a verdict: {error}. {_WRITE_ONE}") from error
    if not isinstance(document, dict) or not document.keys() >= _NEEDED:
        raise CaptureError(f"{path} is JSON, but no verdict of the doctor's. {_WRITE_ONE}")
    if document["schema_version"] != SCHEMA_VERSION:
        version = document["schema_version"]
        raise CaptureError(f"{path} has version {version}, and only {SCHEMA_VERSION} can be compared. {_WRITE_ONE}")
    if not document["step_seconds"]:
        raise CaptureError(f"no step was found in the run of {path}: there is nothing to compare. Let it run for more.")
    return document


def compare(before: Document, after: Document) -> Comparison:
    stayed, went, came = _paired(before["findings"], after["findings"])
    return Comparison(
        before,
        after,
        Change("a step", before["step_seconds"], after["step_seconds"]),
        _parts(before["parts_seconds"], after["parts_seconds"]),
        tuple(went),
        tuple(came),
        tuple(stayed),
        tuple(_otherwise(before, after)),
    )


def _parts(before: dict[str, float], after: dict[str, float]) -> tuple[Change, ...]:
    changes = [Change(name, before.get(name), after.get(name)) for name in before | after]
    return tuple(sorted(changes, key=lambda change: -abs(change.seconds)))


def _paired(
    before: Iterable[Document], after: Iterable[Document]
) -> tuple[list[tuple[Document, Document]], list[Document], list[Document]]:
    """Findings of both runs; lines move and are rewritten, so what is left is paired by its rule alone."""
    gone, new = list(before), list(after)
    stayed: list[tuple[Document, Document]] = []
    for same in (_same_text, _same_rule):
        for old in list(gone):
            match = next((found for found in new if same(old, found)), None)
            if match is not None:
                stayed.append((old, match))
                gone.remove(old)
                new.remove(match)
    return stayed, gone, new


def _same_rule(one: Document, other: Document) -> bool:
    return bool(one["rule"] == other["rule"])


def _same_text(one: Document, other: Document) -> bool:
    return _same_rule(one, other) and _text(one) == _text(other)


def _text(finding: Document) -> Any:
    """What stands in its line; where sources were left out, which line it is."""
    return finding["text"] or (finding["file"], finding["line"])


def _otherwise(before: Document, after: Document) -> Iterable[str]:
    old_gpus, new_gpus = (", ".join(gpu["name"] for gpu in each.get("gpus", ())) for each in (before, after))
    if old_gpus != new_gpus:
        yield f"GPU {old_gpus or 'not known'}, then {new_gpus or 'not known'}"
    for what in ("machine", "versions"):
        for name in before[what] | after[what]:
            old, new = before[what].get(name), after[what].get(name)
            if old != new:
                yield f"{name} {old if old is not None else 'absent'}, then {new if new is not None else 'absent'}"
