"""Results as JSON, and back: what `--json` prints, `--save` writes and `--show` reads."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from forebay.measure.bench.meters import Pace
from forebay.measure.bench.model import Case, Column, Entry, Target, Work
from forebay.measure.bench.results import CaseResult, Results, Row

__all__ = ["SCHEMA_VERSION", "from_json", "to_json"]

SCHEMA_VERSION = 1


def to_json(results: Results) -> dict[str, Any]:
    """Plain data for `--json` and `--save`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": dict(results.machine),
        "versions": dict(results.versions),
        "pace": asdict(results.pace),
        "quick": results.quick,
        "consumer": results.consumer,
        "cases": [_case_to_json(result) for result in results.cases],
    }


def from_json(data: Any) -> Results:
    """The results that were saved; what is worked out is worked out again."""
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"these results have schema_version {version!r}, this version reads {SCHEMA_VERSION}: "
            "run `forebay bench --save` again."
        )
    try:
        return _results(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a part is missing or damaged ({error!r}): run `forebay bench --save` again.") from error


def _case_to_json(result: CaseResult) -> dict[str, Any]:
    targets = [
        asdict(target) | {"measured": result.measured(target), "met": result.met(target)}
        for target in result.case.targets
    ]
    return {
        "case": asdict(result.case) | {"targets": targets},
        "rows": [_row_to_json(result, row) for row in result.rows],
        "taken_share": result.taken_share,
    }


def _row_to_json(result: CaseResult, row: Row) -> dict[str, Any]:
    plain = {"label": row.label, "contender": row.contender, "status": row.status, "reason": row.reason}
    return plain | {"columns": {name: _column_to_json(result, row, name) for name in row.samples}}


def _column_to_json(result: CaseResult, row: Row, name: str) -> dict[str, Any]:
    baseline = result.case.baseline
    ratio = result.ratio(row.label, baseline, name) if baseline else None
    return {
        "samples": list(row.samples[name]),
        "median": row.median(name),
        "spread": row.spread(name),
        "ratio_to_baseline": ratio,
    }


def _results(data: Mapping[str, Any]) -> Results:
    return Results(
        machine=data["machine"],
        versions=data["versions"],
        pace=Pace(**data["pace"]),
        quick=data["quick"],
        consumer=data["consumer"],
        cases=tuple(map(_result, data["cases"])),
    )


def _result(data: Mapping[str, Any]) -> CaseResult:
    taken = data.get("taken_share")
    return CaseResult(_case(data["case"]), tuple(map(_row, data["rows"])), None if taken is None else float(taken))


def _row(data: Mapping[str, Any]) -> Row:
    samples = {name: tuple(map(float, column["samples"])) for name, column in data["columns"].items()}
    return Row(data["label"], data["contender"], data["status"], data["reason"], samples)


def _case(data: Mapping[str, Any]) -> Case:
    targets = (
        {key: value for key, value in target.items() if key not in ("measured", "met")} for target in data["targets"]
    )
    parts = {
        "work": Work(**dict(data["work"], shape=tuple(data["work"]["shape"]))),
        "columns": tuple(Column(**column) for column in data["columns"]),
        "entries": tuple(Entry(**entry) for entry in data["entries"]),
        "files": tuple(data["files"]),
        "targets": tuple(Target(**target) for target in targets),
    }
    return Case(**{**data, **parts})
