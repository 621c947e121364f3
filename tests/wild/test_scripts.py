"""The public scripts: notebooks become scripts, and every script of the third draw has a recipe."""

import json

from tests.wild.scripts import FOLDER, convert_notebook, load_scripts


def notebook(*cells: tuple[str, str]) -> str:
    return json.dumps(
        {"cells": [{"cell_type": kind, "source": text.splitlines(keepends=True)} for kind, text in cells]}
    )


def test_code_cells_are_joined_and_other_cells_are_dropped():
    text = notebook(("code", "a = 1\nb = 2"), ("markdown", "# Title"), ("code", "c = 3\n"))
    assert convert_notebook(text) == "a = 1\nb = 2\n\nc = 3\n"


def test_shell_commands_and_magics_become_comments():
    text = notebook(("code", "%matplotlib inline\nif a:\n    !ls\n    b = 5 % 3"))
    assert convert_notebook(text) == "# %matplotlib inline\nif a:\n#     !ls\n    b = 5 % 3\n"


def test_an_indented_cell_loses_the_indentation_of_its_first_line():
    text = notebook(("code", " a = [1,\n      2]\nb = 3"))
    assert convert_notebook(text) == "a = [1,\n     2]\nb = 3\n"


def test_the_third_draw_has_fifteen_scripts_with_recipes_and_python_names():
    ranking = json.loads((FOLDER / "third_draw" / "ranking.json").read_text())["ranking"]
    taken = {(entry["repository"], entry["path"]) for group in ranking.values() for entry in group if "taken" in entry}
    scripts = load_scripts([], "third draw")
    assert {(script.repository, script.path) for script in scripts} == taken
    assert len(scripts) == 15
    assert all(script.file_name.endswith(".py") for script in scripts)
