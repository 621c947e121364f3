"""The diagnosis as a JSON document, which `--json` writes and `--compare` reads.

`schema.json` describes each key.
"""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import quantiles
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.crossings import MAX_LISTED, Crossing, CrossingTotal, crossings_of, split_crossings
from forebay.doctor.analyse.gpu_gauges import Gauges, gauge_remarks, read_gauges
from forebay.doctor.analyse.host_lines import HostLine, host_lines, run_lines
from forebay.doctor.analyse.memory import MemoryUsage, memory_usage
from forebay.doctor.analyse.phases import parts_of_step
from forebay.doctor.analyse.step_lines import step_lines
from forebay.doctor.analyse.step_parts import TRANSFER_DIRECTIONS
from forebay.doctor.diagnosis.compare_ranks import RankComparison, RankSummary
from forebay.doctor.diagnosis.diagnose import Diagnosis, OtherMachine, run_factor
from forebay.doctor.model.emulation import MeasuredSetting
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import predicted_step_seconds
from forebay.doctor.predict.simulate import Prediction
from forebay.doctor.report.sentences import cost_seconds, cost_share, describe_missing_data, format_headline
from forebay.doctor.report.step_shares import shares_of
from forebay.doctor.report.transfers import Transfer, transfers_of
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["SCHEMA_VERSION", "to_document"]

SCHEMA_VERSION = 1
# The document omits raw readings, which its keys "memory" and "gpus" summarize, and the excerpt of the script.
_OMITTED_FACTS = ("memory", "gauges", "script")


def to_document(diagnosis: Diagnosis, ranks: RankComparison | None = None) -> dict[str, Any]:
    """Return the document of one run.

    With `ranks`, `diagnosis` is that of the slowest rank, and the document also contains an entry for each rank.
    """
    view = diagnosis.view
    capture = view.capture
    return {
        "schema_version": SCHEMA_VERSION,
        "script": capture.script,
        "arguments": list(capture.arguments),
        "ended": capture.ended,
        "seconds": capture.seconds,
        "rank": capture.rank,
        "machine": capture.machine,
        "versions": capture.versions,
        "facts": {name: value for name, value in capture.facts.items() if name not in _OMITTED_FACTS},
        "headline": format_headline(diagnosis),
        "steps": len(view.steps) if view.steps else 0,
        "step_ends_at": _step_end(view),
        "step_seconds": view.step_seconds or None,
        "step_quartiles": _quartiles(view),
        "mean_step_seconds": view.mean_seconds or None,
        "watching_cost": view.profiling_overhead,
        "parts_seconds": parts_of_step(view),
        "parts_share": shares_of(parts_of_step(view)),
        "step_lines": _step_lines(view),
        "host_lines": [_host_line(view, each) for each in host_lines(view)],
        "run_lines": [_run_line(view, each) for each in run_lines(view)],
        "coverage": _coverage(view),
        "findings": [_finding(diagnosis, finding) for finding in diagnosis.findings],
        "crossings": [_transfer(transfer) for transfer in transfers_of(view)],
        "crossing_log": _crossing_log(view),
        "memory": _memory(memory_usage(view)),
        "gpus": [_gpu(gauges) for gauges in read_gauges(view)],
        "ranks": None if ranks is None else _ranks(ranks),
        "verification": _verification(diagnosis),
        "together": _prediction(diagnosis.all_cures),
        "elsewhere": _other_machine(diagnosis.other_machine),
        "not_seen": describe_missing_data(diagnosis),
    }


def _step_end(view: CaptureView) -> dict[str, Any] | None:
    if view.steps is None:
        return None
    _, api, number = view.steps.anchor
    return {"api": api, **_location(view.line(number))}


def _quartiles(view: CaptureView) -> list[float] | None:
    """Return the first and third quartile of the step times behind `step_seconds`.

    Return None with fewer than two steps.
    """
    times: Sequence[float] = view.unprofiled_seconds
    if not times and view.steps is not None:
        times = [(end - start) / 1e9 for start, end in pairwise(view.steps.edges)]
    if len(times) < 2:
        return None
    first, _, third = quantiles(times, method="inclusive")
    return [first, third]


def _coverage(view: CaptureView) -> dict[str, float | None] | None:
    """Return for each direction the share of transferred bytes whose line is known.

    Return None without device records.
    """
    return {direction: view.device.coverage(direction) for direction in TRANSFER_DIRECTIONS} if view.device else None


def _step_lines(view: CaptureView) -> dict[str, Any] | None:
    """Return the time of a step by line; None without a loop."""
    if view.steps is None:
        return None
    found = step_lines(view)
    return {
        "lines": [_host_line(view, each) for each in found.lines],
        "other_seconds": found.other_seconds,
        "unknown_seconds": found.unknown_seconds,
    }


def _host_line(view: CaptureView, host_line: HostLine) -> dict[str, Any]:
    calls = [{"function": function or None, "seconds_per_step": seconds} for function, seconds in host_line.functions]
    return {
        **_location(host_line.line),
        "seconds_per_step": host_line.seconds,
        "share_of_step": min(1.0, host_line.seconds / view.step_seconds) if view.step_seconds else 0.0,
        "calls": calls,
    }


def _run_line(view: CaptureView, run_line: HostLine) -> dict[str, Any]:
    return {
        **_location(run_line.line),
        "seconds": run_line.seconds,
        "share_of_run": min(1.0, run_line.seconds / view.capture.seconds) if view.capture.seconds else 0.0,
        "calls": [{"function": function or None, "seconds": seconds} for function, seconds in run_line.functions],
    }


def _finding(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": diagnosis.severity(finding),
        "title": finding.title,
        **_location(finding.line),
        "seconds_per_step": cost_seconds(diagnosis, finding),
        "share_of_step": cost_share(diagnosis, finding),
        "evidence": list(finding.evidence),
        "cures": [_cure(diagnosis, finding, cure) for cure in finding.cures],
    }


def _cure(diagnosis: Diagnosis, finding: Finding, cure: Cure) -> dict[str, Any]:
    factor = run_factor(diagnosis.view, finding)  # the cures of some rules change the mean step of the run
    low, high = cure.low * factor, cure.high * factor
    return {
        "title": cure.title,
        "code": cure.code,
        "wins_seconds": [low, high],
        "step_seconds": list(predicted_step_seconds(low, high, diagnosis.view.step_seconds * factor)),
        "how": cure.basis,
    }


def _prediction(step: Prediction | None) -> dict[str, Any] | None:
    return {"step_seconds": [step.low, step.high], "model_error": step.error} if step else None


def _other_machine(other: OtherMachine | None) -> dict[str, Any] | None:
    if other is None:
        return None
    return {"machine": other.machine, "step": _prediction(other.step), "trouble": other.reason or None}


def _verification(diagnosis: Diagnosis) -> dict[str, Any] | None:
    verification = diagnosis.verification
    if verification is None:
        return None
    return {
        "emulated": verification.kind.description if verification.kind else None,
        "step_seconds_now": diagnosis.view.step_seconds or None,
        "step_seconds_predicted": list(verification.predicted) if verification.predicted else None,
        "step_seconds_measured": verification.measured,
        "trouble": verification.trouble or None,
        "settings": [_measured_setting(setting) for setting in verification.settings],
    }


def _measured_setting(setting: MeasuredSetting) -> dict[str, Any]:
    saved = list(setting.saved) if setting.saved else None
    return {"title": setting.title, "wins_seconds": saved, "trouble": setting.trouble or None}


def _transfer(transfer: Transfer) -> dict[str, Any]:
    return {
        "kind": transfer.kind,
        "api": transfer.api,
        **_location(transfer.line),
        "times_per_step": transfer.per_step,
        "nbytes_per_step": transfer.nbytes,
        "seconds_per_step": transfer.seconds,
        "share_of_step": transfer.share,
    }


def _crossing_log(view: CaptureView) -> dict[str, Any]:
    listed, totals = split_crossings(crossings_of(view), MAX_LISTED)
    return {"crossings": [*map(_crossing, listed)], "others": [*map(_crossing_total, totals)]}


def _crossing(crossing: Crossing) -> dict[str, Any]:
    return {
        "start_seconds": crossing.start,
        "seconds": crossing.seconds,
        **_crossing_call(crossing),
        "nbytes": crossing.nbytes,
    }


def _crossing_total(total: CrossingTotal) -> dict[str, Any]:
    return {**_crossing_call(total), "count": total.count, "nbytes": total.nbytes, "seconds": total.seconds}


def _crossing_call(crossing: Crossing | CrossingTotal) -> dict[str, Any]:
    return {
        "kind": crossing.kind,
        "direction": crossing.direction,
        "api": crossing.api,
        "cause": "implied" if crossing.is_implied else "explicit",
        **_location(crossing.line),
    }


def _memory(memory: MemoryUsage) -> dict[str, Any]:
    levels = [asdict(level) for level in memory.levels]
    constants = [{**asdict(site), **_location(site.line)} for site in memory.graph_constants]
    return {"levels": levels, "copies": [asdict(copies) for copies in memory.data_copies], "constants": constants}


def _gpu(gauges: Gauges) -> dict[str, Any]:
    held_back = [{"by": reason, "share_of_samples": share} for reason, share in gauges.held_back]
    return asdict(gauges) | {"held_back": held_back, "remarks": [*gauge_remarks(gauges)]}


def _ranks(ranks: RankComparison) -> dict[str, Any]:
    return {"slowest": ranks.slowest.number, "remarks": list(ranks.remarks), "each": [*map(_rank, ranks.ranks)]}


def _rank(rank: RankSummary) -> dict[str, Any]:
    return {
        "rank": rank.number,
        "step_seconds": rank.step_seconds or None,
        "input_seconds": rank.input_seconds,
        "collective_seconds": rank.collective_seconds,
        "headline": format_headline(rank.diagnosis),
        "rule": rank.diagnosis.main.rule if rank.diagnosis.main else None,
    }


def _location(line: Line | None) -> dict[str, Any]:
    if line is None:
        return {"file": None, "line": None, "function": None, "text": None}
    return {"file": line.file, "line": line.number, "function": line.function, "text": line.text or None}
