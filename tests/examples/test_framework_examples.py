"""The examples of PyTorch, JAX and CuPy run. All examples are short, plain and listed."""

import ast
import json
import re

import pytest
from tests.support.parsing import parse
from tests.support.paths import ROOT
from tests.support.run_python import check_python

EXAMPLES = sorted(path for name in ("torch", "jax", "cupy") for path in (ROOT / "examples").glob(f"{name}_*.py"))
NUMBERED = sorted((ROOT / "examples").glob("[0-9]*.py"))  # test_examples.py runs these examples
INDEX = (ROOT / "examples" / "README.md").read_text()
MAX_LINES = 60
FRAMEWORKS = ("PyTorch: ", "JAX: ", "CuPy: ", "TensorFlow: ", "Keras: ")  # an example names its framework first
SETTINGS = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
ADVICE = ("Look at", "ompare")  # an example prints "Look at", "Compare" or "compare"


def run(*command, folder):
    """Run a command of Python without a GPU, and return its output."""
    return check_python(*command, cwd=folder, **SETTINGS)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_what_to_look_at(script, tmp_path):
    printed = run(script, "--quick", folder=tmp_path)
    assert any(advice in printed for advice in ADVICE)
    assert "GPU" in printed  # the text says what a GPU would show
    assert "x as fast" not in printed


def test_the_doctor_finds_the_loader_of_the_slow_script(tmp_path):
    report = tmp_path / "report.json"
    run("-m", "forebay", "doctor", "--json", report, ROOT / "examples/torch_slow_script.py", "--quick", folder=tmp_path)
    findings = json.loads(report.read_text())["findings"]
    assert findings[0]["rule"] == "loader"


@pytest.mark.parametrize("script", [*EXAMPLES, *NUMBERED], ids=lambda path: path.stem)
def test_an_example_is_short_documented_and_in_the_index(script):
    text = script.read_text()
    assert len(text.splitlines()) < MAX_LINES
    assert ast.get_docstring(parse(text)).splitlines()[0].startswith(FRAMEWORKS)
    assert f"[{script.stem}]({script.name})" in INDEX


@pytest.mark.parametrize("script", [*EXAMPLES, *NUMBERED], ids=lambda path: path.stem)
def test_an_example_is_plain_text_and_imports_no_private_module(script):
    text = script.read_text()
    assert text.isascii()
    assert not re.search(r"\b(from|import) +(forebay\.|_)|import_module|\bfb\._", text)


@pytest.mark.parametrize("script", NUMBERED, ids=lambda path: path.stem)
def test_a_numbered_example_imports_at_most_three_names_of_the_harness(script):
    (names,) = re.findall(r"^from side_by_side import (.+)$", script.read_text(), re.MULTILINE)
    assert set(names.split(", ")) <= {"DEVICE", "Variant", "compare"}


@pytest.mark.parametrize("framework", ["torch", "jax", "cupy"])
def test_every_framework_has_an_example(framework):
    assert any(path.name.startswith(framework) for path in EXAMPLES)
