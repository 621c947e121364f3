"""Applies the code of cures to scripts, as a user would who follows the comments in it."""

import ast
import re
from dataclasses import replace
from pathlib import Path

from forebay.doctor.capture.source_excerpt import excerpt_source

__all__ = ["apply_cure", "is_fitted", "with_excerpt"]

_HEADING = re.compile(
    r"# (?:(?P<place>before|instead of|remove) lines? (?P<first>\d+)(?: to (?P<last>\d+))?:?"
    r"|after the loop of line (?P<loop>\d+):)"
)


def is_fitted(code):
    """Whether the code names the lines at which it belongs."""
    return _HEADING.fullmatch(code.split("\n", 1)[0]) is not None


def apply_cure(source, code):
    """Return the source of a script with the code of a cure in it."""
    lines = source.split("\n")
    for start, end, number, text in sorted(_changes(source, code), reverse=True):
        indentation = re.match(r"\s*", source.split("\n")[number - 1]).group()
        lines[start:end] = [indentation + line if line else line for line in text]
    return "\n".join(lines)


def _changes(source, code):
    """Yield start and end of the replaced lines, the number of the line with the indentation, and the new lines."""
    for heading, text in _parts(code):
        if heading["loop"]:
            number = int(heading["loop"])
            end = _end_of_loop(source, number)
            yield end, end, number, text
            continue
        first, last = int(heading["first"]), int(heading["last"] or heading["first"])
        yield first - 1, first - 1 if heading["place"] == "before" else last, first, text


def _parts(code):
    """Return the parts of a code: the match of each heading, and the lines below it."""
    parts = []
    for line in code.split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            parts.append((heading, []))
        else:
            parts[-1][1].append(line)
    return parts


def _end_of_loop(source, number):
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For | ast.While)]
    return next(loop.end_lineno for loop in loops if loop.lineno == number)


def with_excerpt(capture, script):
    """Return a recorded capture with the excerpt of its script; None if the script has changed since."""
    source = Path(script).read_text()
    texts = source.split("\n")
    lines = [line for line in capture.lines if Path(line.file).name == Path(script).name]
    if not lines or any(texts[line.number - 1].strip() != line.text for line in lines if line.text):
        return None
    excerpt = excerpt_source(source, {line.number for line in lines})
    files = [{"file": lines[0].file, "lines": [[number, text] for number, text in excerpt.items()]}]
    return replace(capture, facts=capture.facts | {"script": {"files": files}})
