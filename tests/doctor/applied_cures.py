"""Applies the code of a cure to a script."""

from dataclasses import replace
from pathlib import Path

from forebay.doctor.capture.source_excerpt import excerpt_source
from forebay.doctor.diagnosis.applied_code import apply_code
from forebay.doctor.rules.edits import is_fitted

__all__ = ["apply_cure", "is_fitted", "with_excerpt"]


def apply_cure(source, code):
    """Return the source of a script with the code of a cure in it."""
    return apply_code(source, code).source


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
