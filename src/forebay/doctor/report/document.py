"""The verdict as plain values: what `--json` writes and `--compare` reads. `schema.json` says what each field is."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import quantiles
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.analyse.verdict import Verdict
from forebay.doctor.events import Line
from forebay.doctor.report.crossings import Crossing, crossings_of
from forebay.doctor.report.sentences import headline, not_seen, share
from forebay.doctor.words import predicted

__all__ = ["SCHEMA_VERSION", "document_of"]

SCHEMA_VERSION = 1


def document_of(verdict: Verdict) -> dict[str, Any]:
    case = verdict.case
    capture = case.capture
    return {
        "schema_version": SCHEMA_VERSION,
        "script": capture.script,
        "arguments": list(capture.arguments),
        "ended": capture.ended,
        "seconds": capture.seconds,
        "rank": capture.rank,
        "machine": capture.machine,
        "versions": capture.versions,
        "facts": capture.facts,
        "headline": headline(verdict),
        "steps": len(case.steps) if case.steps else 0,
        "step_ends_at": _step_end(case),
        "step_seconds": case.step_seconds or None,
        "step_quartiles": _quartiles(case),
        "watching_cost": case.overhead,
        "parts_seconds": case.parts,
        "findings": [_finding(verdict, finding) for finding in verdict.findings],
        "crossings": [_crossing(crossing) for crossing in crossings_of(case)],
        "not_seen": not_seen(verdict),
    }


def _step_end(case: Case) -> dict[str, Any] | None:
    if case.steps is None:
        return None
    _, api, number = case.steps.anchor
    return {"api": api, **_place(case.line(number))}


def _quartiles(case: Case) -> list[float] | None:
    """Between which times half of the steps lie, by the same steps that `step_seconds` is the median of."""
    times: Sequence[float] = case.untraced
    if not times and case.steps is not None:
        times = [(after - before) / 1e9 for before, after in pairwise(case.steps.edges)]
    if len(times) < 2:
        return None
    first, _, third = quantiles(times, method="inclusive")
    return [first, third]


def _finding(verdict: Verdict, finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": verdict.severity(finding),
        "title": finding.title,
        **_place(finding.line),
        "seconds_per_step": finding.seconds,
        "share_of_step": share(verdict, finding),
        "evidence": list(finding.evidence),
        "cures": [_cure(verdict, cure) for cure in finding.cures],
    }


def _cure(verdict: Verdict, cure: Cure) -> dict[str, Any]:
    return {
        "title": cure.title,
        "code": cure.code,
        "wins_seconds": [cure.low, cure.high],
        "step_seconds": list(predicted(cure.low, cure.high, verdict.case.step_seconds)),
        "how": cure.how,
    }


def _crossing(crossing: Crossing) -> dict[str, Any]:
    return {
        "kind": crossing.kind,
        "api": crossing.api,
        **_place(crossing.line),
        "times_per_step": crossing.per_step,
        "nbytes_per_step": crossing.nbytes,
        "seconds_per_step": crossing.seconds,
        "share_of_step": crossing.share,
    }


def _place(line: Line | None) -> dict[str, Any]:
    if line is None:
        return {"file": None, "line": None, "function": None, "text": None}
    return {"file": line.file, "line": line.number, "function": line.function, "text": line.text or None}
