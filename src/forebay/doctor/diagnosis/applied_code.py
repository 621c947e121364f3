"""Runs a script with the code of a cure, and with calls that time its loop.

Comments in the code name the lines to change (see `rules.edits`).
"""

import ast
import linecache
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

from forebay.doctor.analyse.loop_code import step_loop
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, last_name
from forebay.doctor.capture.profiled_run import RunRequest
from forebay.doctor.capture.run_script import run_script
from forebay.doctor.emulate.step_timer import step_seconds
from forebay.doctor.model.emulation import Emulation

__all__ = ["DOES_NOT_FIT", "AppliedCode", "apply_code", "run_applied", "time_loop"]

DOES_NOT_FIT = "the code of the cure does not fit the script"

_HEADING = re.compile(
    r"# (?:(?P<place>before|instead of|remove) lines? (?P<first>\d+)(?: to (?P<last>\d+))?:?"
    r"|after the loop of line (?P<loop>\d+):)"
)
_TIMER = '__import__("forebay.doctor.emulate.step_timer", fromlist=["mark"])'
_HEADERS = ("for ", "while ", "def ", "async ")  # starts of lines that begin a loop or a function


class _Change(NamedTuple):
    """New lines that replace `lines[start:end]` of a script, with the indentation of line `indented_like`."""

    start: int
    end: int
    indented_like: int  # line number, from 1
    new_lines: list[str]


class AppliedCode(NamedTuple):
    """The source of a script with the code of a cure."""

    source: str
    changes: tuple[_Change, ...]

    def line_of(self, number: int) -> int:
        """Return where a line of the original script is now.

        For a replaced line, return the last loop or function header of the new code; without one, its first line.
        """
        shift = 0
        for change in self.changes:
            if change.end < number:
                shift += len(change.new_lines) - (change.end - change.start)
            elif change.start < number <= change.end:
                headers = [index for index, line in enumerate(change.new_lines) if line.lstrip().startswith(_HEADERS)]
                shift += change.start + 1 + (headers[-1] if headers else 0) - number
        return number + shift


def run_applied(run: RunRequest, emulation: Emulation) -> tuple[float | None, str]:
    """Run the script with the code of a cure; return the time of a step in seconds, and how the script ended.

    No hook is active. The modules `inspect` and `linecache` get the changed source, which `tf.function` reads. If the
    code does not fit, the script does not run.
    """
    try:
        with tokenize.open(run.script) as file:
            applied = apply_code(file.read(), emulation.code)
        source = time_loop(applied.source, applied.line_of(emulation.number))
    except (OSError, SyntaxError, ValueError) as error:
        return None, f"{DOES_NOT_FIT}: {error}"
    name = run.script if Path(run.script).is_absolute() else f"{Path.cwd()}/{run.script}"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    ended = run_script(run.script, run.arguments, source=source)
    return step_seconds(), ended


def apply_code(source: str, code: str) -> AppliedCode:
    """Return the source of a script with the code of a cure in it. Raise ValueError if the script has too few lines."""
    old_lines = source.split("\n")
    lines = list(old_lines)
    changes = tuple(sorted(_changes(source, code)))
    if missing := [change.indented_like for change in changes if change.indented_like > len(old_lines)]:
        raise ValueError(f"the script has no line {missing[0]}")
    for change in reversed(changes):  # from the end, so that line numbers stay valid
        text = old_lines[change.indented_like - 1]
        indentation = text[: len(text) - len(text.lstrip())]
        lines[change.start : change.end] = [indentation + line if line else line for line in change.new_lines]
    return AppliedCode("\n".join(lines), changes)


def _changes(source: str, code: str) -> list[_Change]:
    """Return the changes that the code of a cure describes."""
    found: list[_Change] = []
    for heading, text in _parts(code):
        if heading["loop"]:
            number = int(heading["loop"])
            end = _end_of_loop(source, number)
            found.append(_Change(end, end, number, text))
            continue
        first, last = int(heading["first"]), int(heading["last"] or heading["first"])
        found.append(_Change(first - 1, first - 1 if heading["place"] == "before" else last, first, text))
    return found


def _parts(code: str) -> list[tuple[re.Match[str], list[str]]]:
    """Return the match of each heading, such as "# before line 7:", and the lines below it."""
    parts: list[tuple[re.Match[str], list[str]]] = []
    for line in code.split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            parts.append((heading, []))
        elif parts:
            parts[-1][1].append(line)
    return parts


def _end_of_loop(source: str, number: int) -> int:
    """Return the last line of the loop that starts at this line."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For | ast.While)]
    return next((loop.end_lineno or number for loop in loops if loop.lineno == number), number)


def time_loop(source: str, number: int) -> str:
    """Return a script in which each iteration of the loop around a line calls `step_timer.mark`.

    If the line calls `fit`, each batch calls `step_timer.mark`. Raise ValueError if there is no loop.
    """
    code = ScriptCode(source)
    statement = code.statement_at(number)
    if statement is None:
        raise ValueError(f"the changed script has no statement in line {number}")
    fits = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and last_name(node) == "fit"]
    is_header = isinstance(statement, ast.For | ast.While) and statement.lineno == number
    loop = statement if is_header else step_loop(code, statement)
    if fits and not isinstance(statement, (ast.For, ast.While, *FUNCTIONS)):
        return _with_text(source, fits[0].func, f"{_TIMER}.timed_fit(", ")")
    if not isinstance(loop, ast.For | ast.While):
        raise ValueError("the changed script has no loop around its step")
    first = loop.body[0]
    end = "\n" + " " * first.col_offset if hasattr(first, "body") or hasattr(first, "cases") else "; "
    return _with_text(source, first, f"{_TIMER}.mark(){end}", "")


def _with_text(source: str, node: ast.expr | ast.stmt, before: str, after: str) -> str:
    """Return the source with text around a node. The columns of `ast` count bytes."""
    lines = source.encode().split(b"\n")
    for row, column, text in (
        ((node.end_lineno or node.lineno) - 1, node.end_col_offset or 0, after),
        (node.lineno - 1, node.col_offset, before),
    ):
        lines[row] = lines[row][:column] + text.encode() + lines[row][column:]
    return b"\n".join(lines).decode()
