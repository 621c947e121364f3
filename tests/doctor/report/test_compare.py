"""Comparison of two runs: step time, and findings that are resolved, new or remaining."""

import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.doctor.report import report_samples as samples

from forebay.doctor.report.compare import compare, read_document
from forebay.doctor.report.document import to_document
from forebay.doctor.report.terminal_compare import render_comparison
from forebay.errors import CaptureError

SNAPSHOTS = Path(__file__).parent / "snapshots"
ORDINARY, CURED = to_document(samples.ordinary()), to_document(samples.cured())
CROWDED, HOSTILE = to_document(samples.crowded()), to_document(samples.hostile())


def rules_of(findings):
    return [finding["rule"] for finding in findings]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("compare_faster", ORDINARY, CURED), ("compare_slower", CURED, ORDINARY), ("compare_same", ORDINARY, ORDINARY)],
)
def test_a_comparison_equals_its_snapshot(name, before, after):
    screen = render_comparison(compare(before, after), ("before.json", "after.json"))
    assert screen.plain + "\n" == (SNAPSHOTS / f"{name}.txt").read_text()


@pytest.mark.parametrize(("before", "after"), [(ORDINARY, CROWDED), (CROWDED, HOSTILE), (HOSTILE, CURED)])
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_every_line_of_a_comparison_fits_the_width(before, after, width):
    lines = render_comparison(compare(before, after), ("a" * 90, "b" * 90), width=width).plain.splitlines()
    assert max(map(cell_len, lines)) <= max(60, min(80, width))
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in "".join(lines)


def test_different_scripts_are_reported():
    other = render_comparison(compare(ORDINARY, CURED | {"script": "/home/me/other.py"}), ("a", "b")).plain
    assert "The two runs are of different scripts: train.py and other.py." in other
    moved = render_comparison(compare(ORDINARY, CURED | {"script": "/elsewhere/train.py"}), ("a", "b")).plain
    assert "different scripts" not in moved


def test_another_gpu_is_reported():
    gpus = {"gpus": [{"name": "NVIDIA H200"}]}
    assert compare(ORDINARY | gpus, CURED | {"gpus": []}).differences == ("GPU NVIDIA H200 before, unknown after",)
    assert compare(ORDINARY | gpus, CURED | gpus).differences == ()


def test_findings_are_resolved_new_or_remaining():
    found = compare(ORDINARY, CURED)
    assert rules_of(found.resolved) == ["repeated_upload", "read_back"]
    assert rules_of(found.new) == []
    assert rules_of(new for _, new in found.remaining) == ["input_bound"]
    assert rules_of(compare(CURED, ORDINARY).new) == ["repeated_upload", "read_back"]


def test_a_finding_on_a_moved_line_remains():
    moved = ORDINARY | {"findings": [finding | {"line": 7, "file": "b.py"} for finding in ORDINARY["findings"]]}
    assert len(compare(ORDINARY, moved).remaining) == 3


def test_a_finding_on_a_rewritten_line_remains():
    rewritten = ORDINARY | {"findings": [finding | {"text": "x = y"} for finding in ORDINARY["findings"]]}
    assert len(compare(ORDINARY, rewritten).remaining) == 3


def test_a_second_finding_of_a_rule_is_new():
    found = compare(ORDINARY, ORDINARY | {"findings": [*ORDINARY["findings"], ORDINARY["findings"][0]]})
    assert rules_of(found.new) == ["repeated_upload"]


def test_each_part_has_its_change():
    changes = {change.name: change.seconds for change in compare(ORDINARY, CURED).parts}
    assert changes["host to device"] == pytest.approx(-0.006, rel=0.01)
    assert changes["everything else"] == pytest.approx(0.0018, rel=0.01)


def test_phases_are_compared_only_if_both_runs_have_them():
    split = {"waiting for input": 0.005, "forward": 0.001, "optimizer": 0.002, "everything else": 0.001}
    whole = {"waiting for input": 0.0, "everything else": 0.004}
    before = ORDINARY | {"parts_seconds": split, "step_seconds": 0.009}
    after = CURED | {"parts_seconds": whole, "step_seconds": 0.004}
    for found in (compare(before, after), compare(after, before)):
        assert {change.name for change in found.parts} == whole.keys()
        assert found.parts[-1].seconds == pytest.approx(0)
    both = {change.name: change.seconds for change in compare(before, before).parts}
    assert both == dict.fromkeys(split, 0.0)


def with_mean(document, seconds, rule):
    finding = document["findings"][0] | {"rule": rule}
    return document | {"mean_step_seconds": seconds, "findings": [finding]}


def test_the_mean_of_all_steps_is_compared_if_a_finding_is_about_the_run():
    before, after = with_mean(ORDINARY, 0.021, "pauses"), with_mean(ORDINARY, 0.0175, "read_back")
    screen = render_comparison(compare(before, after), ("a", "b")).plain
    (row,) = [line.split() for line in screen.splitlines() if "the mean of all steps" in line]
    assert row[5:] == ["21.0", "ms", "17.5", "ms", "-3.50", "ms"]
    assert "the mean of all steps" in render_comparison(compare(after, before), ("a", "b")).plain


def test_the_mean_of_all_steps_is_left_out_without_such_a_finding_or_without_a_mean():
    before, after = with_mean(ORDINARY, 0.021, "read_back"), with_mean(ORDINARY, 0.0175, "input_bound")
    assert compare(before, after).mean_step is None
    assert compare(with_mean(ORDINARY, None, "pauses"), after).mean_step is None


def test_another_machine_or_version_is_reported():
    elsewhere = {
        **CURED,
        "versions": CURED["versions"] | {"torch": "2.4.0"},
        "machine": CURED["machine"] | {"cores": 2},
    }
    assert compare(ORDINARY, elsewhere).differences == ("cores 16 before, 2 after", "torch 2.13.0 before, 2.4.0 after")
    assert compare(ORDINARY, CURED).differences == ()


@pytest.mark.parametrize(
    ("before", "after", "severity", "worse"),
    [
        (ORDINARY, CURED, "moderate", False),
        (CURED, ORDINARY, "moderate", True),  # two new findings
        (CURED, ORDINARY | {"findings": []}, "severe", True),  # no new finding, but a step takes twice as long
        (ORDINARY, ORDINARY | {"step_seconds": 0.0113, "step_quartiles": [0.0112, 0.0114]}, "moderate", True),
        (ORDINARY, ORDINARY | {"step_seconds": 0.0113, "step_quartiles": [0.0112, 0.0114]}, "severe", False),
        (ORDINARY, ORDINARY | {"step_seconds": 0.0113, "step_quartiles": [0.0101, 0.0125]}, "moderate", False),
    ],
)
def test_worse_means_a_new_finding_or_a_significantly_slower_step(before, after, severity, worse):
    assert compare(before, after).is_worse(severity) is worse


def test_a_saved_document_is_read_back(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ORDINARY))
    assert read_document(tmp_path / "a.json") == ORDINARY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON document of forebay doctor"),
        ("[]", "is JSON, but not a document of the doctor"),
        ('{"schema_version": 1}', "is JSON, but not a document of the doctor"),
        (json.dumps(ORDINARY | {"schema_version": 99}), "has schema version 99"),
        (json.dumps(to_document(samples.no_loop())), "the doctor found no step"),
    ],
)
def test_an_unusable_document_is_rejected(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CaptureError, match=message):
        read_document(tmp_path / "a.json")


def test_parts_of_both_runs_add_up_to_their_steps():
    """The parts of documents of version 0.1 add up to a profiled step."""
    old = ORDINARY | {"parts_seconds": {name: 3 * seconds for name, seconds in ORDINARY["parts_seconds"].items()}}
    parts = compare(old, CURED).parts
    assert sum(part.before for part in parts) == pytest.approx(ORDINARY["step_seconds"])
    assert sum(part.after for part in parts) == pytest.approx(CURED["step_seconds"])


FOREIGN = {"foreign_cores": 8.0, "worker_cores": 0.0}


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (FOREIGN | {"foreign_cores": 9.6}, FOREIGN, "Other programs used 9.6 of 16 cores before and 8.0 of 16"),
        ({}, FOREIGN, "Other programs used 8.0 of 16 cores after: the difference may be theirs."),
        ({"foreign_cores": 1.0}, {"foreign_cores": 8.0, "worker_cores": 7.5}, ""),
        ({"foreign_cores": "many"}, {"foreign_cores": None}, ""),
        ({}, {"foreign_cores": 8.0}, ""),  # the worker processes of the script may use these cores
        ({}, FOREIGN | {"foreign_cores": float("inf")}, ""),
    ],
)
def test_a_comparison_says_that_other_programs_used_the_cores(before, after, text):
    found = compare(ORDINARY | {"facts": before}, CURED | {"facts": after})
    screen = " ".join(render_comparison(found, ("a", "b")).plain.split())
    assert text in screen
    assert ("Other programs" in screen) == bool(text)
