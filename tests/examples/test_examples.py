"""The numbered examples run and are listed, and their records are shown."""

import ast
import importlib
import json
import os
import pty
import subprocess
import sys

import pytest
from tests.support.parsing import parse
from tests.support.paths import ROOT
from tests.support.run_python import check_python

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
QUESTIONS = (ROOT / "docs" / "questions.md").read_text()
INDEX = (ROOT / "examples" / "README.md").read_text()
SETTINGS = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def run(*command):
    """Run a script without a GPU, so that it does the same on every machine."""
    check_python(*command, cwd=ROOT, **SETTINGS)


def run_in_terminal(*command):
    """Run a script whose stderr is a terminal. Return what it prints there."""
    terminal, script_end = pty.openpty()
    with os.fdopen(script_end, "wb") as stderr:
        command, settings = [sys.executable, *map(str, command)], os.environ | SETTINGS
        subprocess.run(command, env=settings, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr, timeout=500)
        printed = os.read(terminal, 65_536)  # bytes; the buffer of a terminal holds less
    os.close(terminal)
    return printed.decode()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Run all examples. Return the folder with their printed text and records."""
    folder = tmp_path_factory.mktemp("examples")
    run("-m", "tests.examples.run_examples", folder, *EXAMPLES)
    return folder


@pytest.fixture(scope="module")
def helpers():
    """Import the modules that the examples share, as the examples do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples")
        yield {name: importlib.import_module(name) for name in ("record_file", "table")}


@pytest.fixture(scope="module")
def table(helpers):
    return helpers["table"]


@pytest.fixture(scope="module")
def record_file(helpers):
    return helpers["record_file"]


def timing(*seconds, error=None):
    return {"first_seconds": 1.5 if seconds else None, "seconds": seconds, "error": error, "answer": 1.0}


def record(example, *, plain, forebay, quick=False, device="Imaginary GPU"):
    return {
        "example": example,
        "device": device,
        "quick": quick,
        "steps": 10,
        "step_nbytes": 4,
        "plain": plain,
        "forebay": forebay,
        "machine": {"cpu": "Imaginary CPU", "cores": 4, "python": "3.12"},
        "versions": {"forebay": "0.1.0", "tensorflow": "2.21.0"},
    }


@pytest.fixture
def write(tmp_path):
    def write(*records, schema_version=1):
        path = tmp_path / "examples-imaginary.json"
        path.write_text(json.dumps({"schema_version": schema_version, "records": records}))
        return path

    return write


def test_examples_are_numbered_from_01_to_15():
    assert [path.stem[:2] for path in EXAMPLES] == [f"{number:02}" for number in range(1, 16)]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_appends_a_record(script, outputs):
    printed = (outputs / f"{script.stem}.txt").read_text()
    assert (outputs / f"{script.stem}.status").read_text() == "0", printed[-4000:]
    (found,) = json.loads((outputs / "results" / f"{script.stem}.json").read_text())["records"]
    assert found["example"] == script.stem
    assert found["date"].endswith("Z")
    assert "commit" in found
    assert found["device"].startswith("CPU")
    assert min(found["plain"]["seconds"] + found["forebay"]["seconds"]) > 0
    assert f"{script.stem} on CPU" in printed
    assert f"{script.stem} on NVIDIA H200" in printed
    assert "On the NVIDIA H200, look at " in printed


def test_an_example_shows_each_round_in_a_terminal():
    printed = run_in_terminal(EXAMPLES[0], "--quick", "--rounds", "3")
    for progress in ("plain: set-up and first round", "plain: round 1 of 3", "forebay: round 3 of 3"):
        assert f"{progress}, " in printed


def test_an_example_shows_no_progress_if_stderr_is_no_terminal(outputs):
    assert "round 1 of" not in (outputs / f"{EXAMPLES[0].stem}.txt").read_text()


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_both_variants_and_a_docstring(script):
    tree = parse(script.read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert ast.get_docstring(tree).splitlines()[0]
    assert functions >= {"plain", "forebay", "main"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_in_the_index_and_in_an_answer(script):
    assert f"[{script.stem}]({script.name})" in INDEX
    assert f"(../examples/{script.name})" in QUESTIONS


def test_the_report_of_a_cpu_has_the_recorded_times_of_a_gpu(record_file):
    timings = {"plain": timing(0.4, 0.2, 0.3), "forebay": timing(0.1)}
    text = record_file.report(
        record("01_x", device="CPU", **timings), "both times.", record("01_x", device="Big GPU", **timings)
    )
    here, there = text.split("TensorFlow found no GPU.")
    assert "x as fast" not in here
    assert "01_x on Big GPU: 10 steps of 4 B, forebay 0.1.0" in there
    assert "plain    30.000 ms per step (median of 3 rounds, 20.000 to 40.000)" in there
    assert "3 x as fast with Forebay" in there
    assert text.endswith("On the Big GPU, look at both times.")


def test_the_report_of_a_cpu_without_the_recorded_times_names_the_page(record_file):
    text = record_file.report(record("01_x", device="CPU", plain=timing(1), forebay=timing(1)), "both times.", None)
    assert "x as fast" not in text
    assert "see docs/questions.md.\nLook at both times." in text


def test_the_report_of_a_gpu_has_a_ratio_only_for_full_sizes(record_file):
    timings = {"plain": timing(0.4), "forebay": timing(0.1)}
    full = record_file.report(record("01_x", **timings), "both times.", None)
    quick = record_file.report(record("01_x", quick=True, **timings), "both times.", None)
    assert "4 x as fast with Forebay\nLook at both times." in full
    assert "run without --quick to compare times.\nLook at" in quick
    assert "x as fast" not in quick


def test_the_report_shows_the_error_of_a_failed_variant(record_file):
    failed = timing(error="Failed copying input tensor: Dst tensor is not initialized. [Op:Cast] name: ")
    text = record_file.report(record("07_x", plain=failed, forebay=timing(0.1)), "plain.", None)
    assert "plain    failed: Dst tensor is not initialized\n" in text
    assert "x as fast" not in text


def test_a_record_is_appended_to_a_new_and_to_an_existing_file(record_file, tmp_path):
    path = tmp_path / "new" / "examples-imaginary.json"
    for name in ("01_x", "02_x"):
        record_file.append(path, record(name, plain=timing(0.1), forebay=timing(0.1)))
    assert [found["example"] for found in record_file.read(path)] == ["01_x", "02_x"]


@pytest.mark.parametrize("text", ["", "[]", "{}", "not JSON"])
def test_a_file_without_results_is_refused(record_file, tmp_path, text):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"wrong\.json"):
        record_file.read(path)


def test_the_page_has_the_recorded_measurements():
    run(ROOT / "examples" / "table.py", "--check")


def test_a_table_holds_medians_spread_ratio_and_first_rounds(table, write):
    made = table.render([write(record("01_x", plain=timing(0.2, 0.1, 0.3), forebay=timing(0.05, 0.05, 0.05)))])
    assert "**Imaginary GPU** (Imaginary CPU, 4 cores; Python 3.12, forebay 0.1.0, tensorflow 2.21.0)." in made
    assert "| [01_x](../examples/01_x.py) | 20 (10 to 30) | 5 (5 to 5) | 4 | 1.5 / 1.5 |" in made


def test_a_table_lists_the_rounds_of_a_variant_if_they_differ_much(table, write):
    made = table.render([write(record("03_x", plain=timing(0.2, 0.1, 0.3), forebay=timing(0.9, 0.1, 0.1)))])
    assert made.endswith("\nThe rounds of 03_x with Forebay differ: 90, 10, 10 ms per step, in this order.\n")
    assert "with plain TensorFlow differ" not in made


def test_a_row_shows_the_error_of_a_failed_variant(table, write):
    failed = timing(
        error="Failed copying input tensor from device:CPU:0: Dst tensor is not initialized. [Op:Cast] name: "
    )
    made = table.render([write(record("07_x", plain=failed, forebay=timing(0.1)))])
    assert "| fails: Dst tensor is not initialized | 10 (10 to 10) | - | - / 1.5 |" in made


def test_the_later_of_two_records_counts_and_quick_records_do_not(table, write):
    records = [
        record("01_x", plain=timing(0.1), forebay=timing(0.1)),
        record("01_x", plain=timing(0.2), forebay=timing(0.1)),
        record("01_x", plain=timing(0.9), forebay=timing(0.1), quick=True),
    ]
    assert "| 20 (20 to 20) | 10 (10 to 10) | 2 |" in table.render([write(*records)])


def test_records_of_two_machines_in_one_file_are_refused(table, write):
    variants = {"plain": timing(0.1), "forebay": timing(0.1)}
    path = write(record("01_x", **variants), record("02_x", device="Another GPU", **variants))
    with pytest.raises(SystemExit, match="records of 2 machines"):
        table.render([path])


def test_records_of_another_schema_are_refused(table, write):
    with pytest.raises(SystemExit, match="schema_version 7"):
        table.render([write(schema_version=7)])


def test_fill_replaces_only_the_text_between_the_markers(table):
    page = "before\n<!-- examples -->\nold\n<!-- /examples -->\nafter\n"
    assert table.fill(page, "new\n") == "before\n<!-- examples -->\nnew\n<!-- /examples -->\nafter\n"


def test_a_page_without_markers_is_refused(table):
    with pytest.raises(SystemExit, match="no <!-- examples -->"):
        table.fill("a page", "new\n")
