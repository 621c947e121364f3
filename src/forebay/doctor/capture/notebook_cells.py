"""Lines of notebook cells, named as IPython names them: `Cell In[9], line 12`.

IPython compiles a cell under a generated file name, and its compiler can tell which cell has this name. The magics
`%time` and `%timeit` compile their code once more, under a file name that all cells share. For this code, the doctor
searches the stack for the frame of the cell. Profiling must not fail with an unknown version of IPython: a line then
keeps the generated name.
"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from forebay.doctor.model.events import CELL_PREFIX

__all__ = ["MAGIC_FILES", "CellLine", "cell_name", "find_magic_line", "session_name"]

MAGIC_FILES = frozenset({"<timed exec>", "<timed eval>", "<magic-timeit>"})  # file names of code that a magic compiles
_CELL_MAGIC = "%%"
_CELL_NUMBER = re.compile(rf"{re.escape(CELL_PREFIX)}(\d+)\]")
_OLD_FILE = re.compile(r"<ipython-input-(\d+)-\w+>")  # before 7.31, IPython has no method that formats this name
_LAUNCHERS = frozenset({"ipykernel_launcher.py", "colab_kernel_launcher.py", "ipython", "ipython3"})


class CellLine(NamedTuple):
    """A line of a cell that a magic runs."""

    file: str  # generated name of the cell
    number: int
    text: str


def cell_name(file: str) -> str | None:
    """Return the name of the cell with a generated file name, such as `Cell In[9]`.

    Return None for other files.
    """
    with suppress(Exception):  # no IPython, or an unknown version
        label = _shell().compile.format_code_name(file)
        if label is not None:
            return " ".join(label)
    match = _OLD_FILE.fullmatch(file)
    return f"{CELL_PREFIX}{match[1]}]" if match else None


def find_magic_line(frame: FrameType) -> CellLine | None:
    """Return the cell's line that a frame of a magic executes; None if unknown."""
    try:
        return _find_cell_line(frame)
    except Exception:  # an unknown version of IPython
        return None


def session_name() -> str:
    """Return a name for the script of this process: its path, or the notebook."""
    if Path(sys.argv[0]).name not in _LAUNCHERS:
        return sys.argv[0] or "a session"
    return os.environ.get("JPY_SESSION_NAME") or ("a notebook" if "ipykernel" in sys.modules else "an IPython session")


def _find_cell_line(frame: FrameType) -> CellLine | None:
    """Return the line of the cell whose magic runs this frame; None if unknown."""
    caller, name = frame.f_back, None
    while caller is not None and caller.f_code.co_filename not in MAGIC_FILES:
        name = cell_name(caller.f_code.co_filename)
        if name is not None:
            break
        caller = caller.f_back
    if caller is None:
        return None
    if name is None:  # another magic runs this magic, as in a cell that begins with `%%time`
        return _find_cell_line(caller)
    source = _source_of(name)
    magics = _count_magics(source)
    number = frame.f_lineno + magics if magics else caller.f_lineno
    return CellLine(caller.f_code.co_filename, number, source[number - 1].strip() if number <= len(source) else "")


def _source_of(name: str) -> list[str]:
    """Return the lines of a cell as the user typed them."""
    match = _CELL_NUMBER.fullmatch(name)
    return str(_shell().history_manager.input_hist_raw[int(match[1])]).splitlines() if match else []


def _count_magics(source: list[str]) -> int:
    """Return the number of cell magics, such as `%%time`, in front of the code."""
    return next((number for number, line in enumerate(source) if not line.startswith(_CELL_MAGIC)), len(source))


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython()
