"""Tests that the notebooks are clean and listed. `.ci/full notebooks` runs them."""

import json

import pytest
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
