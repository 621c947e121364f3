"""Results as JSON, which `forebay bench --json` prints, `--save` writes, and `--show` reads."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from forebay.measure.bench.meters import RunSettings
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload
from forebay.measure.bench.results import BenchResults, CaseResult, ResultRow

__all__ = ["SCHEMA_VERSION", "from_json", "to_json"]

SCHEMA_VERSION = 1


def to_json(results: BenchResults) -> dict[str, Any]:
    """Convert results to JSON values. The keys of Forebay 0.1 keep their names."""
    return {
        "schema_version": SCHEMA_VERSION,
        "date": results.date,
        "commit": results.commit,
        "machine": dict(results.machine),
        "versions": dict(results.versions),
        "pace": asdict(results.settings),
        "quick": results.quick,
        "consumer": results.consumer,
        "cases": [_case_to_json(result) for result in results.cases],
    }


def from_json(data: Any) -> BenchResults:
    """Return the results in a JSON value.

    Ignore its medians and ratios, which follow from the samples.
    """
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"the results have schema_version {version!r}, and this version of Forebay reads {SCHEMA_VERSION}. "
            "Run `forebay bench --save` again."
        )
    try:
        return _results_from_json(data)
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
    entry = {"label": row.label, "contender": row.contender, "status": row.status, "reason": row.reason}
    return entry | {"columns": {name: _column_to_json(result, row, name) for name in row.samples}}


def _column_to_json(result: CaseResult, row: ResultRow, name: str) -> dict[str, Any]:
    baseline = result.case.baseline
    ratio = result.ratio(row.label, baseline, name) if baseline else None
    return {
        "samples": list(row.samples[name]),
        "median": row.median(name),
        "spread": row.spread(name),
        "ratio_to_baseline": ratio,
    }


def _results_from_json(data: Mapping[str, Any]) -> BenchResults:
    return BenchResults(
        machine=data["machine"],
        versions=data["versions"],
        settings=RunSettings(**data["pace"]),
        quick=data["quick"],
        consumer=data["consumer"],
        cases=tuple(map(_case_result_from_json, data["cases"])),
        date=_text_or_none(data, "date"),
        commit=_text_or_none(data, "commit"),
    )


def _text_or_none(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not a string")
    return value


def _case_result_from_json(data: Mapping[str, Any]) -> CaseResult:
    steal_share = data.get("taken_share")  # older files do not have it
    rows = tuple(map(_row_from_json, data["rows"]))
    return CaseResult(_case_from_json(data["case"]), rows, None if steal_share is None else float(steal_share))


def _row_from_json(data: Mapping[str, Any]) -> ResultRow:
    samples = {name: tuple(map(float, column["samples"])) for name, column in data["columns"].items()}
    return ResultRow(data["label"], data["contender"], data["status"], data["reason"], samples)


def _case_from_json(data: Mapping[str, Any]) -> Case:
    targets = (
        {key: value for key, value in target.items() if key not in ("measured", "met")} for target in data["targets"]
    )
    nested = {
        "work": Workload(**dict(data["work"], shape=tuple(data["work"]["shape"]))),
        "columns": tuple(ResultColumn(**column) for column in data["columns"]),
        "entries": tuple(Entry(**entry) for entry in data["entries"]),
        "files": tuple(data["files"]),
        "targets": tuple(PerformanceTarget(**target) for target in targets),
    }
    return Case(**{**data, **nested})
