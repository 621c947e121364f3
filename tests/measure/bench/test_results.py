"""Values computed from the samples, and results as JSON."""

import json
from dataclasses import replace

import pytest
from tests.support.paths import ROOT

from forebay.measure.bench.results import ResultRow
from forebay.measure.bench.results_file import SCHEMA_VERSION, from_json, to_json

RECORDED = sorted((ROOT / "benchmarks" / "results").glob("h200*.json"))


def test_results_read_from_json_equal_the_written_results(fixed_results):
    assert from_json(json.loads(json.dumps(to_json(fixed_results)))) == fixed_results


def test_gpu_results_read_from_json_equal_the_written_results(fixed_gpu_results):
    assert from_json(json.loads(json.dumps(to_json(fixed_gpu_results)))) == fixed_gpu_results


def test_results_saved_before_cases_had_a_timeout_can_still_be_read(fixed_results):
    data = json.loads(json.dumps(to_json(fixed_results)))
    del data["cases"][0]["case"]["timeout_seconds"]
    assert from_json(data) == fixed_results


def test_the_cpu_steal_share_is_saved(fixed_results):
    results = replace(fixed_results, cases=(replace(fixed_results.cases[0], cpu_steal_share=0.25),))
    assert from_json(to_json(results)).cases[0].cpu_steal_share == 0.25


def test_results_without_a_cpu_steal_share_can_still_be_read(fixed_results):
    data = to_json(fixed_results)
    del data["cases"][0]["taken_share"]
    assert from_json(data).cases[0].cpu_steal_share is None


def test_date_and_commit_are_saved(fixed_results):
    measured = replace(fixed_results, date="2026-11-18T15:36:47Z", commit="9942fc14")
    data = to_json(measured)
    assert (data["date"], data["commit"]) == ("2026-11-18T15:36:47Z", "9942fc14")
    assert from_json(json.loads(json.dumps(data))) == measured


def test_results_without_date_and_commit_can_still_be_read(fixed_results):
    data = to_json(replace(fixed_results, date="2026-11-18T15:36:47Z", commit="9942fc14"))
    del data["date"], data["commit"]
    assert from_json(data) == fixed_results


def test_a_date_that_is_not_a_string_is_refused(fixed_results):
    with pytest.raises(ValueError, match="date is 7, not a string"):
        from_json(to_json(fixed_results) | {"date": 7})


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name)
def test_the_results_of_this_project_can_be_read(file):
    assert from_json(json.loads(file.read_text())).rows


def test_json_contains_machine_and_settings(fixed_results):
    data = to_json(fixed_results)
    assert data["schema_version"] == SCHEMA_VERSION
    assert data["machine"]["cores"] == 2
    assert data["pace"] == {"seconds": 1.0, "warm_up_seconds": 1.0, "repeats": 5}
    assert data["cases"][0]["rows"][1]["columns"]["idle"]["median"] == 12.0e6
    assert data["cases"][0]["case"]["targets"][0]["met"] is False


def test_results_of_another_version_are_refused():
    with pytest.raises(ValueError, match="schema_version 99"):
        from_json({"schema_version": 99})


def test_ratios_are_taken_round_by_round(fixed_results):
    (result,) = fixed_results.cases
    assert result.ratio("forebay", "np.take loop", "idle") == pytest.approx(12.0 / 9.4)


def test_a_target_without_a_measurement_is_neither_met_nor_missed(fixed_results):
    (result,) = fixed_results.cases
    assert [result.is_met(target) for target in result.case.targets] == [False, False, None]


def test_spread_is_half_the_range_over_the_median():
    assert ResultRow("a", "b", samples={"c": (10.0, 9.0, 12.0)}).spread("c") == pytest.approx(0.15)
