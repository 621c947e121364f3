"""Edits of the script: new code, and the place in the script where it belongs.

The code of a cure is text that people paste into their script. Each part of it begins with a comment that names its
place:

    # before line 12:
    feed = fb.from_arrays((x, y)).batch(32).feed("torch")
    # instead of line 12:
    for batch, labels in feed:
    # remove line 13
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, Self

from forebay.core.parsing import first_line
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode

__all__ = [
    "FOREBAY_IMPORT",
    "Edit",
    "argument_texts",
    "format_edits",
    "import_lines",
    "is_fitted",
    "join_code",
    "module_import",
    "outermost_definition",
]

FOREBAY_IMPORT = "import forebay as fb"
_HEADINGS = ("# before line", "# instead of line", "# remove line", "# after the loop of line")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the script: new text, and its place.

    The user indents `text` like the line `first`. An empty `text` removes the lines.
    """

    place: Literal["before", "instead", "after"]  # "after": after the loop that begins at line `first`
    first: int  # number of the first line
    last: int  # number of the last line
    text: str
    statement: ast.stmt | None = field(default=None, compare=False, repr=False)  # that the text replaces or precedes

    @classmethod
    def before(cls, statement: ast.stmt, *lines: str) -> Self:
        return cls("before", first_line(statement), first_line(statement), "\n".join(lines), statement)

    @classmethod
    def instead(cls, statement: ast.stmt, text: str) -> Self:
        return cls("instead", statement.lineno, statement.end_lineno or statement.lineno, text, statement)

    @classmethod
    def remove(cls, code: ScriptCode, statement: ast.stmt) -> Self:
        return cls.instead(statement, "pass" if code.is_alone(statement) else "")

    @classmethod
    def header(cls, code: ScriptCode, statement: ast.stmt, text: str) -> Self:
        """Replace the header of a compound statement."""
        return cls("instead", statement.lineno, code.header_end(statement), text)

    @classmethod
    def after_loop(cls, loop: ast.stmt, *lines: str) -> Self:
        return cls("after", loop.lineno, loop.lineno, "\n".join(lines))

    def keep_neighbours(self, code: ScriptCode) -> "Edit":
        """Return an edit that keeps other statements on the lines that it replaces.

        Raise ValueError in three cases: `text` has several lines, and its lines in the script also have other
        statements; or other statements would run between `text` and the statement that it must precede; or `text` has a
        string of several lines, which a new indentation would change.
        """
        if "\n" in self.text and any(quotes in self.text for quotes in ('"""', "'''")):
            raise ValueError(f"line {self.first} has a string of several lines. Change this line by hand.")
        if self.place == "before" and self.statement is not None and code.follows_on_line(self.statement):
            raise ValueError(f"line {self.first} has several statements. Change this line by hand.")
        if self.place == "before":
            return self
        if self.statement is None or (lines := code.replace_in_lines(self.statement, self.text or "pass")) is None:
            return self
        if "\n" in self.text:
            raise ValueError(f"line {self.first} has several statements. Change this line by hand.")
        return replace(self, text=lines)

    @property
    def place_text(self) -> str:
        if self.place == "after":
            return f"# after the loop of line {self.first}:"
        numbers = f"line {self.first}" if self.first == self.last else f"lines {self.first} to {self.last}"
        if not self.text:
            return f"# remove {numbers}"
        return f"# before {numbers}:" if self.place == "before" else f"# instead of {numbers}:"


def format_edits(edits: Iterable[Edit]) -> str:
    """Return edits as the code of a cure, in the order of their lines.

    Edits after a loop come last. Raise ValueError if two edits replace the same line.
    """
    edits = list(edits)
    replaced = sorted((edit.first, edit.last) for edit in edits if edit.place == "instead")
    for (_, last), (first, _) in pairwise(replaced):
        if first <= last:
            raise ValueError(f"two edits replace line {first}. Change this line by hand.")
    ordered = sorted(edits, key=lambda edit: (edit.place == "after", edit.first, edit.place != "before"))
    return "\n".join(line for edit in ordered for line in (edit.place_text, edit.text) if line)


def is_fitted(code: str) -> bool:
    """Whether the code of a cure names the lines of the script that it changes."""
    return code.startswith(_HEADINGS)


def join_code(*codes: str) -> str:
    """Join the code of several cures, each from `format_edits`, with one heading per place."""
    parts: dict[str, list[str]] = {}
    heading = ""
    for line in "\n".join(filter(None, codes)).split("\n"):
        heading = line if is_fitted(line) else heading
        parts.setdefault(heading, [])
        if line != heading:
            parts[heading].append(line)
    return "\n".join(line for heading, lines in parts.items() for line in (heading, *lines) if line)


def import_lines(code: ScriptCode, *, numpy: bool = False) -> list[str]:
    """Return the imports of Forebay and, with `numpy`, of NumPy for new code.

    Omit imports that the script already has.
    """
    lines = [] if code.module_alias("forebay", "") == "fb" else [FOREBAY_IMPORT]
    return lines + (["import numpy as np"] if numpy and not code.imports("numpy") else [])


def module_import(code: ScriptCode, module: str) -> tuple[str, list[str]]:
    """Return the name of a module in new code, and the import statements for it.

    The name differs from `module` if it belongs to another object, as after `from random import random`.
    """
    if code.imports(module):
        return code.module_alias(module, module), []
    imports = [node for node in code.statements if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    name = f"{module}_module" if module in imported | code.all_names else module
    return name, [f"import {module}" if name == module else f"import {module} as {name}"]


def argument_texts(code: ScriptCode, call: ast.Call) -> list[str]:
    """Return the arguments of a call as text."""
    named = [(f"{each.arg}=" if each.arg else "**", each.value) for each in call.keywords]
    return [*map(code.text, call.args), *(start + code.text(value) for start, value in named)]


def outermost_definition(code: ScriptCode, statement: ast.stmt) -> ast.stmt:
    """Return the outermost function or class around a statement, else the statement itself."""
    around = [parent for parent in code.ancestors(statement) if isinstance(parent, (*FUNCTIONS, ast.ClassDef))]
    return around[-1] if around else statement
