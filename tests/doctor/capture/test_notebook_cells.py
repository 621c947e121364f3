"""Lines in notebook cells have the name of their cell.

The tests do not require ipykernel. `Notebook` imitates it with the file names and methods of IPython 9 and ipykernel 7.
The last test runs cells in IPython itself.
"""

import linecache
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from forebay.doctor.capture.notebook_cells import cell_name, session_name
from forebay.doctor.capture.source_lines import SourceLines

TIMED = "notebook.run_magic('mark()', '<timed eval>')"  # corresponds to the code that IPython runs for `%time mark()`


class Notebook:
    """Runs cells under the file names that ipykernel gives them."""

    def __init__(self):
        self.history_manager = SimpleNamespace(input_hist_raw=[""])
        self.compile = SimpleNamespace(format_code_name=self._format_code_name)
        self.variables = {"notebook": self}
        self._numbers = {}  # file name -> number of the cell

    def _format_code_name(self, file):
        return ("Cell", f"In[{self._numbers[file]}]") if file in self._numbers else None

    def run(self, source):
        """Run a cell, whose first line may be a cell magic."""
        raw = self.history_manager.input_hist_raw
        raw.append(source)
        file = f"/tmp/ipykernel_2353/{hash(source) % 10**10}.py"
        self._numbers[file] = len(raw) - 1
        magic, _, body = source.partition("\n")
        code = f"notebook.run_magic({body!r}, '<timed exec>')" if magic.startswith("%%") else source
        linecache.cache[file] = (len(code), None, [f"{line}\n" for line in code.splitlines()], file)
        exec(compile(code, file, "exec"), self.variables)

    def run_magic(self, source, file):
        exec(compile(source, file, "exec"), self.variables)


@pytest.fixture
def notebook(monkeypatch):
    shell = Notebook()
    module = ModuleType("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    lines = SourceLines()
    shell.variables["mark"] = lambda: lines.current_line(1)  # records the line of the cell that calls it
    shell.lines = lines
    return shell


def recorded_lines(notebook):
    """Return the location and the text of each recorded line."""
    return [(str(line), line.text) for line in notebook.lines.read()]


def test_a_line_has_the_number_of_its_cell_and_its_text(notebook):
    notebook.run("x = 1")
    notebook.run("x = 2\nmark()")
    assert recorded_lines(notebook) == [("Cell In[2], line 2", "mark()")]


def test_a_function_keeps_its_cell_if_another_cell_calls_it(notebook):
    notebook.run("def train():\n    return mark()")
    notebook.run("train()")
    assert recorded_lines(notebook) == [("Cell In[1], line 2", "return mark()")]
    assert notebook.lines.read()[0].function == "train"


def test_a_cell_that_runs_again_has_its_new_number(notebook):
    notebook.run("mark()")
    notebook.run("mark()")
    assert recorded_lines(notebook) == [("Cell In[2], line 1", "mark()")]


def test_the_line_of_a_cell_magic_counts_as_the_first_line_of_its_cell(notebook):
    notebook.run("%%time\nx = 1\nmark()")
    assert recorded_lines(notebook) == [("Cell In[1], line 3", "mark()")]


def test_a_line_magic_has_the_line_of_its_cell(notebook):
    notebook.run(f"x = 1\n{TIMED}")
    assert recorded_lines(notebook) == [("Cell In[1], line 2", TIMED)]


def test_a_line_magic_below_a_cell_magic_has_the_line_of_its_cell(notebook):
    notebook.run(f"%%time\nx = 1\n{TIMED}")
    assert recorded_lines(notebook) == [("Cell In[1], line 3", TIMED)]


def test_a_file_is_not_a_cell(notebook):
    assert cell_name(__file__) is None


def test_a_file_name_of_old_versions_of_ipython_contains_the_number_of_its_cell():
    assert cell_name("<ipython-input-12-46cb10db88ed>") == "Cell In[12]"
    assert cell_name("/tmp/ipykernel_2353/2444582933.py") is None


@pytest.mark.parametrize("shell", [None, SimpleNamespace(), SimpleNamespace(compile=SimpleNamespace())])
def test_with_an_unknown_version_of_ipython_a_line_keeps_its_file_name(monkeypatch, shell):
    module = ModuleType("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    lines = SourceLines()
    exec(compile("lines.current_line(0)", "<timed exec>", "exec"), {"lines": lines})
    assert [line.file for line in lines.read()] == ["<timed exec>"]


def test_lines_of_an_interpreter_and_of_exec_keep_their_file_names():
    lines = SourceLines()
    for file in ("<stdin>", "<python-input-3>", "<mine>"):
        exec(compile("\nlines.current_line(0)", file, "exec"), {"lines": lines})
    assert [str(line) for line in lines.read()] == ["<stdin>:2", "<python-input-3>:2", "<mine>:2"]


@pytest.mark.parametrize(
    ("script", "environment", "name"),
    [
        ("train.py", {}, "train.py"),
        ("", {}, "a session"),
        ("/lib/ipykernel_launcher.py", {"JPY_SESSION_NAME": "/home/me/train.ipynb"}, "/home/me/train.ipynb"),
        ("/bin/ipython", {}, "an IPython session"),
    ],
)
def test_a_session_is_named_after_its_script_or_notebook_and_not_after_its_launcher(
    monkeypatch, script, environment, name
):
    monkeypatch.setattr(sys, "argv", [script])
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert session_name() == name


REAL_CELLS = r"""
from IPython.core.interactiveshell import InteractiveShell
from forebay.doctor.capture.source_lines import SourceLines

shell, lines = InteractiveShell.instance(), SourceLines()
shell.user_ns["mark"] = lambda: lines.current_line(1)
for cell in ("def train():\n    return mark()", "train()\nmark()", "%%time\nx = 1\nmark()", "x = 1\n%time mark()"):
    shell.run_cell(cell, store_history=True)
print("|".join(f"{line} {line.text}" for line in lines.read()))
"""


@pytest.mark.slow
def test_ipython_itself_gives_lines_the_names_of_their_cells(tmp_path):
    (tmp_path / "cells.py").write_text(REAL_CELLS)
    done = subprocess.run([sys.executable, tmp_path / "cells.py"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split("|") == [
        "Cell In[1], line 2 return mark()",
        "Cell In[2], line 2 mark()",
        "Cell In[3], line 3 mark()",
        "Cell In[4], line 2 %time mark()",
    ]
