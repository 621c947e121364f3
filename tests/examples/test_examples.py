"""Tests that all examples run and are listed, and that the table in the docs matches their records."""

import ast
import importlib.util
import json

import pytest
from tests.support.parsing import parse
from tests.support.paths import ROOT
from tests.support.run_python import check_python

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
QUESTIONS = (ROOT / "docs" / "questions.md").read_text()
INDEX = (ROOT / "examples" / "README.md").read_text()


def run(*command):
    """Run a script without a GPU, so that it does the same on every machine."""
    check_python(*command, cwd=ROOT, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Run all examples. Return the folder with their printed text and records."""
    folder = tmp_path_factory.mktemp("examples")
    run("-m", "tests.examples.run_examples", folder, *EXAMPLES)
    return folder


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("table", ROOT / "examples" / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    assert "x as fast with Forebay" in printed


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


def test_the_page_has_the_recorded_measurements():
    run(ROOT / "examples" / "table.py", "--check")


def test_a_table_holds_medians_spread_ratio_and_first_rounds(table, write):
    made = table.render([write(record("01_x", plain=timing(0.2, 0.1, 0.3), forebay=timing(0.05, 0.05, 0.05)))])
    assert "**Imaginary GPU** (Imaginary CPU, 4 cores; Python 3.12, forebay 0.1.0, tensorflow 2.21.0)." in made
    assert "| [01_x](../examples/01_x.py) | 20 (± 50%) | 5 (± 0%) | 4 | 1.5 / 1.5 |" in made


def test_a_row_shows_the_error_of_a_failed_variant(table, write):
    failed = timing(
        error="Failed copying input tensor from device:CPU:0: Dst tensor is not initialized. [Op:Cast] name: "
    )
    made = table.render([write(record("07_x", plain=failed, forebay=timing(0.1)))])
    assert "| fails: Dst tensor is not initialized | 10 (± 0%) | - | - / 1.5 |" in made


def test_the_later_of_two_records_counts_and_quick_records_do_not(table, write):
    records = [
        record("01_x", plain=timing(0.1), forebay=timing(0.1)),
        record("01_x", plain=timing(0.2), forebay=timing(0.1)),
        record("01_x", plain=timing(0.9), forebay=timing(0.1), quick=True),
    ]
    assert "| 20 (± 0%) | 10 (± 0%) | 2 |" in table.render([write(*records)])


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
