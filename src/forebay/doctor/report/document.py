"""The verdict as plain values: what `--json` writes and `--compare` reads. `schema.json` says what each field is."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import quantiles
from typing import Any

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.gpu_gauges import Gauges, gauges_of, remarks_on
from forebay.doctor.analyse.memory import Memory, memory_of
from forebay.doctor.analyse.step_parts import COPYING
from forebay.doctor.diagnosis.compare_ranks import Rank, Ranks
from forebay.doctor.diagnosis.diagnose import Elsewhere, Verdict
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import predicted
from forebay.doctor.predict.simulate import Prediction
from forebay.doctor.report.sentences import headline, not_seen, share
from forebay.doctor.report.transfers import Crossing, crossings_of
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["SCHEMA_VERSION", "document_of"]

SCHEMA_VERSION = 1
_TOLD_ELSEWHERE = ("memory", "gauges")  # as readings; the document has what comes of them


def document_of(verdict: Verdict, ranks: Ranks | None = None) -> dict[str, Any]:
    """One run; of several ranks this is the slowest, with a row of each beside it."""
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
        "facts": {name: value for name, value in capture.facts.items() if name not in _TOLD_ELSEWHERE},
        "headline": headline(verdict),
        "steps": len(case.steps) if case.steps else 0,
        "step_ends_at": _step_end(case),
        "step_seconds": case.step_seconds or None,
        "step_quartiles": _quartiles(case),
        "watching_cost": case.overhead,
        "parts_seconds": case.step_parts,
        "coverage": _coverage(case),
        "findings": [_finding(verdict, finding) for finding in verdict.findings],
        "crossings": [_crossing(crossing) for crossing in crossings_of(case)],
        "memory": _memory(memory_of(case)),
        "gpus": [_gpu(gauges) for gauges in gauges_of(case)],
        "ranks": None if ranks is None else _ranks(ranks),
        "verification": _verification(verdict),
        "together": _foretold(verdict.together),
        "elsewhere": _elsewhere(verdict.elsewhere),
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


def _coverage(case: Case) -> dict[str, float | None] | None:
    """Which share of the bytes that crossed lines explain; None where the device was not recorded."""
    return {direction: case.device.coverage(direction) for direction in COPYING} if case.device else None


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


def _foretold(step: Prediction | None) -> dict[str, Any] | None:
    return {"step_seconds": [step.low, step.high], "model_error": step.error} if step else None


def _elsewhere(there: Elsewhere | None) -> dict[str, Any] | None:
    """A step on another machine, where that was asked for."""
    if there is None:
        return None
    return {"machine": there.told, "step": _foretold(there.step), "trouble": there.doubt or None}


def _verification(verdict: Verdict) -> dict[str, Any] | None:
    told = verdict.verification
    if told is None:
        return None
    return {
        "emulated": told.way.in_words if told.way else None,
        "step_seconds_now": verdict.case.step_seconds or None,
        "step_seconds_predicted": list(told.predicted) if told.predicted else None,
        "step_seconds_measured": told.measured,
        "trouble": told.trouble or None,
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


def _memory(memory: Memory) -> dict[str, Any]:
    levels = [asdict(level) for level in memory.levels]
    constants = [{**asdict(each), **_place(each.line)} for each in memory.embedded]
    return {"levels": levels, "copies": [asdict(spread) for spread in memory.spreads], "constants": constants}


def _gpu(gauges: Gauges) -> dict[str, Any]:
    held_back = [{"by": reason, "share_of_samples": share} for reason, share in gauges.held_back]
    return asdict(gauges) | {"held_back": held_back, "remarks": [*remarks_on(gauges)]}


def _ranks(ranks: Ranks) -> dict[str, Any]:
    return {"slowest": ranks.slowest.number, "remarks": list(ranks.remarks), "each": [*map(_rank, ranks.ranks)]}


def _rank(rank: Rank) -> dict[str, Any]:
    return {
        "rank": rank.number,
        "step_seconds": rank.step_seconds or None,
        "input_seconds": rank.input_seconds,
        "collective_seconds": rank.collective_seconds,
        "headline": headline(rank.verdict),
        "rule": rank.verdict.main.rule if rank.verdict.main else None,
    }


def _place(line: Line | None) -> dict[str, Any]:
    if line is None:
        return {"file": None, "line": None, "function": None, "text": None}
    return {"file": line.file, "line": line.number, "function": line.function, "text": line.text or None}
