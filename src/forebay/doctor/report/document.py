"""The verdict as plain values: what `--json` writes and `--compare` reads."""

from typing import Any

from forebay.doctor.analyse.finding import Finding
from forebay.doctor.analyse.verdict import Verdict

__all__ = ["SCHEMA_VERSION", "document_of"]

SCHEMA_VERSION = 1


def document_of(verdict: Verdict) -> dict[str, Any]:
    case = verdict.case
    return {
        "schema_version": SCHEMA_VERSION,
        "script": case.capture.script,
        "ended": case.capture.ended,
        "machine": case.capture.machine,
        "versions": case.capture.versions,
        "steps": len(case.steps) if case.steps else 0,
        "step_seconds": case.step_seconds or None,
        "watching_cost": case.overhead,
        "parts_seconds": case.parts,
        "findings": [_finding(verdict, finding) for finding in verdict.findings],
        "not_seen": [*case.capture.notes, *verdict.silent],
    }


def _finding(verdict: Verdict, finding: Finding) -> dict[str, Any]:
    line = finding.line
    return {
        "rule": finding.rule,
        "severity": verdict.severity(finding),
        "title": finding.title,
        "file": line.file if line else None,
        "line": line.number if line else None,
        "text": line.text if line else None,
        "seconds_per_step": finding.seconds,
        "evidence": list(finding.evidence),
        "cures": [
            {"title": cure.title, "code": cure.code, "wins_seconds": [cure.low, cure.high], "how": cure.how}
            for cure in finding.cures
        ],
    }
