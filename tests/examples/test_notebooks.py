"""The notebooks are clean and listed, and every cell runs."""

import json
import os
import subprocess
import sys

import pytest
from tests.support.framework_processes import SETTINGS
from tests.support.parsing import parse
from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
INDEX = (ROOT / "examples" / "README.md").read_text()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_compiles(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert cells[0]["cell_type"] == "markdown"
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert parse("\n".join("".join(cell["source"]) for cell in code)).body


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_in_the_index_beside_its_script(notebook):
    assert f"(notebooks/{notebook.name})" in INDEX
    assert (ROOT / "examples" / f"{notebook.stem}.py").is_file()


def run(notebook):
    """Run a notebook in a new process, because frameworks clash in one process."""
    command = [sys.executable, "-m", "tests.examples.run_notebook", notebook]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | SETTINGS, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(notebook):
    done = run(notebook)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_notebook_with_a_failing_cell_fails(tmp_path):
    cells = [{"cell_type": "code", "source": ["1 /", " 0"]}, {"cell_type": "code", "source": ["print('later')"]}]
    (tmp_path / "broken.ipynb").write_text(json.dumps({"cells": cells}))
    done = run(tmp_path / "broken.ipynb")
    assert done.returncode == 1
    assert "cell 0 failed." in done.stderr
    assert "later" not in done.stdout
