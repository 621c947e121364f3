"""The JSON document fits its schema, and the schema describes every field."""

import json
from importlib.resources import files

import jsonschema
import pytest
from tests.doctor.captures import TORCH, TORCH_GPU, download, loop, run_of
from tests.doctor.histories import monitored, with_pauses
from tests.doctor.report import report_samples as samples

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.redaction import without_source
from forebay.doctor.report.document import SCHEMA_VERSION, to_document

SCHEMA = json.loads(files("forebay.doctor.report").joinpath("schema.json").read_text())
SAMPLES = ["ordinary", "crowded", "healthy", "no_loop", "no_framework", "hostile", "cured"]
SAMPLES += ["few_crossings", pytest.param("many_crossings", marks=pytest.mark.long), "crossings_beside_a_loop"]
OBJECTS = [SCHEMA, *(part for part in SCHEMA["$defs"].values() if "properties" in part)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_document_fits_the_schema(name):
    document = json.loads(json.dumps(to_document(getattr(samples, name)()), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_the_schema_is_valid_and_has_the_current_version():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


ADDED_SINCE_0_1 = {  # documents of 0.1 must remain valid
    "crossing_log",
    "host_lines",
    "mean_step_seconds",
    "parts_share",
    "run_lines",
    "settings",
    "step_lines",
}


@pytest.mark.parametrize("described", OBJECTS)
def test_every_field_is_described_required_and_known(described):
    assert all(field["description"] for field in described["properties"].values())
    assert set(described["required"]) == set(described["properties"]) - ADDED_SINCE_0_1
    assert described["additionalProperties"] is False


def test_values_that_were_not_measured_are_null():
    document = to_document(samples.no_loop())
    assert document["step_seconds"] is None
    assert document["step_quartiles"] is None
    assert document["watching_cost"] is None
    assert document["step_ends_at"] is None


def test_the_document_contains_the_numbers_of_the_diagnosis():
    document = to_document(samples.ordinary())
    assert document["headline"] == "torch.tensor uploads the same 11.4 MiB again and again"
    assert document["steps"] == 50
    assert document["step_seconds"] == pytest.approx(0.0109)
    assert document["step_quartiles"] == pytest.approx([0.0109, 0.0109])
    assert document["step_ends_at"]["api"] == "optimizer.step"
    assert [finding["severity"] for finding in document["findings"]] == ["severe", "moderate", "moderate"]
    assert document["findings"][0]["line"] == 34
    assert document["findings"][0]["cures"][0]["step_seconds"] == pytest.approx([0.005, 0.0056])


def test_costs_and_gains_of_rare_long_steps_are_those_of_the_mean_step():
    """Usual steps take 10 ms, and every 20th step takes 210 ms: the mean is 20 ms, and half of the run is pauses."""
    capture = monitored(loop(frameworks=TORCH, untraced=(0.01,) * 5), with_pauses(400, 20, 200))
    document = to_document(diagnose(capture))
    (finding,) = document["findings"]
    low, high = finding["cures"][0]["wins_seconds"]
    fastest, slowest = finding["cures"][0]["step_seconds"]
    assert (document["step_seconds"], document["mean_step_seconds"]) == pytest.approx((0.01, 0.02))
    assert finding["seconds_per_step"] == pytest.approx(0.01)
    assert low <= 0.009 <= high
    assert (fastest, slowest) == pytest.approx((0.02 - high, 0.02 - low))


def test_transfers_are_grouped_by_line_with_the_longest_first():
    crossings = to_document(samples.ordinary())["crossings"]
    assert [crossing["api"] for crossing in crossings] == ["torch.tensor", "DataLoader", "Tensor.item"]
    assert crossings[0]["nbytes_per_step"] == 12_000_000
    assert crossings[0]["times_per_step"] == 1
    assert crossings[0]["share_of_step"] == pytest.approx(6 / 11)


def test_transfers_of_a_capture_without_source_have_no_source_text():
    diagnosis = samples.ordinary()
    capture = without_source(diagnosis.view.capture)
    document = to_document(samples.diagnosis_of(capture))
    assert {crossing["text"] for crossing in document["crossings"]} == {None}


def test_the_log_has_each_crossing_with_its_time_line_and_cause():
    log = to_document(samples.few_crossings())["crossing_log"]
    assert [crossing["api"] for crossing in log["crossings"]][:3] == ["torch.from_numpy", "Tensor.to", "Module.to"]
    assert log["crossings"][3] == {
        "start_seconds": pytest.approx(3.011),
        "seconds": pytest.approx(2e-4),
        "kind": "download",
        "direction": "device to host",
        "api": "bool(tensor)",
        "cause": "implied",
        "file": "/home/me/project/train.py",
        "line": 41,
        "function": "train",
        "text": "losses.append(loss.item())",
        "nbytes": 1,
    }
    assert log["others"] == []


@pytest.mark.slow
def test_the_log_has_ten_thousand_crossings_and_totals_of_the_others():
    log = to_document(samples.many_crossings())["crossing_log"]
    assert len(log["crossings"]) == 10_000
    assert [(total["line"], total["count"]) for total in log["others"]] == [(line, 400) for line in range(35, 40)]


def test_the_log_of_a_script_with_a_loop_has_the_crossings_outside_of_it():
    log = to_document(samples.crossings_beside_a_loop())["crossing_log"]
    assert [crossing["line"] for crossing in log["crossings"]] == [34] * 7 + [112]
    assert to_document(samples.ordinary())["crossing_log"] == {"crossings": [], "others": []}


def test_a_call_of_few_steps_takes_at_most_the_whole_mean_step():
    document = to_document(diagnose(loop(download("Tensor.item", 9, every=5), frameworks=TORCH_GPU)))
    (crossing,) = document["crossings"]
    assert 0 < crossing["share_of_step"] <= 1
    assert crossing["share_of_step"] == pytest.approx(document["parts_share"]["device to host"])


def test_the_lines_of_a_step_and_the_rest_take_the_step_time():
    document = to_document(samples.ordinary())
    found = document["step_lines"]
    seconds = [each["seconds_per_step"] for each in found["lines"]]
    assert sum(seconds) + found["other_seconds"] + found["unknown_seconds"] == pytest.approx(document["step_seconds"])
    assert len(seconds) > 1
    assert to_document(samples.no_loop())["step_lines"] is None


def test_the_document_of_a_run_without_a_loop_has_the_time_of_each_line():
    document = to_document(diagnose(run_of((14, "torch.load", 5), (15, "", 2))))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert [(each["line"], each["share_of_run"]) for each in document["run_lines"]] == [
        (14, pytest.approx(0.5)),
        (15, pytest.approx(0.2)),
    ]
    assert document["run_lines"][0]["calls"] == [{"function": "torch.load", "seconds": pytest.approx(0.5)}]
    assert to_document(samples.ordinary())["run_lines"] == []
