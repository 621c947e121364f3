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
from typing import Literal, Self

from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, first_line

__all__ = [
    "FOREBAY_IMPORT",
    "Edit",
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
    """One change of the script. `text` gets the indentation of the line `first`; an empty text removes the lines."""

    place: Literal["before", "instead", "after"]  # "after": after the loop that begins at line `first`
    first: int  # number of a line
    last: int
    text: str
    statement: ast.stmt | None = field(default=None, compare=False, repr=False)  # the statement that the text replaces

    @classmethod
    def before(cls, statement: ast.stmt, *lines: str) -> Self:
        return cls("before", first_line(statement), first_line(statement), "\n".join(lines))

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
        """Return an edit that keeps the other statements on its lines.

        Raise ValueError if there are other statements and the new text has several lines, or if the new text has a
        string of several lines, which a new indentation would change.
        """
        if "\n" in self.text and any(quotes in self.text for quotes in ('"""', "'''")):
            raise ValueError(f"line {self.first} has a string of several lines")
        if self.statement is None or (lines := code.replace_in_lines(self.statement, self.text or "pass")) is None:
            return self
        if "\n" in self.text:
            raise ValueError(f"line {self.first} has several statements")
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
    """Return edits as the code of a cure, in the order of their lines. Those after a loop come last."""
    ordered = sorted(edits, key=lambda edit: (edit.place == "after", edit.first, edit.place != "before"))
    return "\n".join(line for edit in ordered for line in (edit.place_text, edit.text) if line)


def is_fitted(code: str) -> bool:
    """Whether the code of a cure names the lines of the script at which it belongs."""
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
    """Return the import statements that new code needs: of Forebay and, with `numpy`, of NumPy.

    Omit imports that the script already has.
    """
    lines = [] if code.module_alias("forebay", "") == "fb" else [FOREBAY_IMPORT]
    return lines + (["import numpy as np"] if numpy and not code.imports("numpy") else [])


def module_import(code: ScriptCode, module: str) -> tuple[str, list[str]]:
    """Return a name of a module for new code, and the import statements that the name needs.

    Another object of the script may have the name of the module, as after `from random import random`.
    """
    if code.imports(module):
        return code.module_alias(module, module), []
    imports = [node for node in code.statements if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    name = f"{module}_module" if module in imported | code.all_names else module
    return name, [f"import {module}" if name == module else f"import {module} as {name}"]


def outermost_definition(code: ScriptCode, statement: ast.stmt) -> ast.stmt:
    """Return the outermost function or class around a statement; the statement itself if there is none."""
    around = [parent for parent in code.ancestors(statement) if isinstance(parent, (*FUNCTIONS, ast.ClassDef))]
    return around[-1] if around else statement
