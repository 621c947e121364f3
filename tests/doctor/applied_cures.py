"""Applies the code of a cure to a script. Comments in the code name the lines to change."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.support.parsing import parse

from forebay.doctor.capture.source_excerpt import excerpt_source

__all__ = ["apply_cure", "is_fitted", "with_excerpt"]

_HEADING = re.compile(
    r"# (?:(?P<place>before|instead of|remove) lines? (?P<first>\d+)(?: to (?P<last>\d+))?:?"
    r"|after the loop of line (?P<loop>\d+):)"
)


class _Change(NamedTuple):
    """New lines that replace `lines[start:end]` of a script, with the indentation of line `indented_like`."""

    start: int
    end: int
    indented_like: int  # line number, from 1
    new_lines: list[str]


def is_fitted(code):
    """Whether the code names the lines of the script that it changes."""
    return _HEADING.fullmatch(code.split("\n", 1)[0]) is not None


def apply_cure(source, code):
    """Return the source of a script with the code of a cure in it."""
    lines = source.split("\n")
    for change in sorted(_changes(source, code), reverse=True):  # from the end, so that line numbers stay valid
        indentation = re.match(r"\s*", source.split("\n")[change.indented_like - 1]).group()
        lines[change.start : change.end] = [indentation + line if line else line for line in change.new_lines]
    return "\n".join(lines)


def _changes(source, code):
    """Yield the changes that the code of a cure describes."""
    for heading, text in _parts(code):
        if heading["loop"]:
            number = int(heading["loop"])
            end = _end_of_loop(source, number)
            yield _Change(end, end, number, text)
            continue
        first, last = int(heading["first"]), int(heading["last"] or heading["first"])
        yield _Change(first - 1, first - 1 if heading["place"] == "before" else last, first, text)


def _parts(code):
    """Return the match of each heading, such as "# before line 7:", and the lines below it."""
    parts = []
    for line in code.split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            parts.append((heading, []))
        else:
            parts[-1][1].append(line)
    return parts


def _end_of_loop(source, number):
    """Return the last line of the loop that starts at this line."""
    loops = [node for node in ast.walk(parse(source)) if isinstance(node, ast.For | ast.While)]
    return next(loop.end_lineno for loop in loops if loop.lineno == number)


def with_excerpt(capture, script):
    """Return a recorded capture with the excerpt of its script.

    Return None if the script has changed since the recording, or if the capture has no line of the script.
    """
    source = Path(script).read_text()
    texts = source.split("\n")
    lines = [line for line in capture.lines if Path(line.file).name == Path(script).name]
    if not lines or any(texts[line.number - 1].strip() != line.text for line in lines if line.text):
        return None
    excerpt = excerpt_source(source, {line.number for line in lines})
    files = [{"file": lines[0].file, "lines": [[number, text] for number, text in excerpt.items()]}]
    return replace(capture, facts=capture.facts | {"script": {"files": files}})
