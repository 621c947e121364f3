"""Results as JSON: `--json` prints it, `--save` writes it and `--show` reads it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload
from forebay.measure.bench.results import BenchResults, CaseResult, ResultRow

__all__ = ["SCHEMA_VERSION", "from_json", "to_json"]

SCHEMA_VERSION = 1


def to_json(results: BenchResults) -> dict[str, Any]:
    """Convert results to plain data. The keys are those of version 0.1."""
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": dict(results.machine),
        "versions": dict(results.versions),
        "pace": asdict(results.settings),
        "quick": results.quick,
        "consumer": results.consumer,
        "cases": [_case_to_json(result) for result in results.cases],
    }


def from_json(data: Any) -> BenchResults:
    """Read results. Medians and ratios are computed again from the samples."""
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"the results have schema_version {version!r}, and this version of Forebay reads {SCHEMA_VERSION}. "
            "Run `forebay bench --save` again."
        )
    try:
        return _results(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a part is missing or damaged ({error!r}). Run `forebay bench --save` again.") from error


def _case_to_json(result: CaseResult) -> dict[str, Any]:
    targets = [
        asdict(target) | {"measured": result.measured(target), "met": result.is_met(target)}
        for target in result.case.targets
    ]
    return {
        "case": asdict(result.case) | {"targets": targets},
        "rows": [_row_to_json(result, row) for row in result.rows],
        "taken_share": result.cpu_steal_share,
    }


def _row_to_json(result: CaseResult, row: ResultRow) -> dict[str, Any]:
    plain = {"label": row.label, "contender": row.contender, "status": row.status, "reason": row.reason}
    return plain | {"columns": {name: _column_to_json(result, row, name) for name in row.samples}}


def _column_to_json(result: CaseResult, row: ResultRow, name: str) -> dict[str, Any]:
    baseline = result.case.baseline
    ratio = result.ratio(row.label, baseline, name) if baseline else None
    return {
        "samples": list(row.samples[name]),
        "median": row.median(name),
        "spread": row.spread(name),
        "ratio_to_baseline": ratio,
    }


def _results(data: Mapping[str, Any]) -> BenchResults:
    return BenchResults(
        machine=data["machine"],
        versions=data["versions"],
        settings=RunSettings(**data["pace"]),
        quick=data["quick"],
        consumer=data["consumer"],
        cases=tuple(map(_result, data["cases"])),
    )


def _result(data: Mapping[str, Any]) -> CaseResult:
    stolen = data.get("taken_share")  # files from before this was measured do not have it
    return CaseResult(_case(data["case"]), tuple(map(_row, data["rows"])), None if stolen is None else float(stolen))


def _row(data: Mapping[str, Any]) -> ResultRow:
    samples = {name: tuple(map(float, column["samples"])) for name, column in data["columns"].items()}
    return ResultRow(data["label"], data["contender"], data["status"], data["reason"], samples)


def _case(data: Mapping[str, Any]) -> Case:
    targets = (
        {key: value for key, value in target.items() if key not in ("measured", "met")} for target in data["targets"]
    )
    parts = {
        "work": Workload(**dict(data["work"], shape=tuple(data["work"]["shape"]))),
        "columns": tuple(ResultColumn(**column) for column in data["columns"]),
        "entries": tuple(Entry(**entry) for entry in data["entries"]),
        "files": tuple(data["files"]),
        "targets": tuple(PerformanceTarget(**target) for target in targets),
    }
    return Case(**{**data, **parts})
