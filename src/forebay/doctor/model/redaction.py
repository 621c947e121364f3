"""Copies of a capture without user data, for reports that the user shares with others."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forebay.doctor.model.capture import Capture

__all__ = ["describe_error", "without_arguments", "without_source"]

_ERROR_TEXT = re.compile(r"\b(\w*(?:Error|Exception))\b:.*", re.DOTALL)
_PATH = re.compile(r"(?<![\w.])(?:~|\.\.?)?/(?:[^\s'\"`:;,()<>]*/)?([^\s'\"`:;,()<>/]+)")


def without_arguments(capture: Capture) -> Capture:
    """Return a copy without the arguments of the script and the text of its exception."""
    return replace(capture, arguments=(), ended=_without_text(capture.ended))


def without_source(capture: Capture) -> Capture:
    """Return a copy without arguments, exception texts, source text and folders; files keep their names."""
    capture = without_arguments(capture)
    return replace(
        capture,
        script=Path(capture.script).name,
        lines=tuple(line._replace(file=Path(line.file).name, text="") for line in capture.lines),
        notes=tuple(_shorten_paths(_ERROR_TEXT.sub(r"\1", note)) for note in capture.notes),
        facts={name: _without_folders(value) for name, value in capture.facts.items() if name != "script"},
    )


def describe_error(error: BaseException) -> str:
    """Name an exception without its text, which may contain user data: `ValueError in loader.py:31`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{place}"


def _without_text(ended: str) -> str:
    """Return `Capture.ended` without the message of an exception or of `sys.exit`."""
    if ended.startswith("exit "):
        code = ended.removeprefix("exit ")
        return ended if code.lstrip("-").isdigit() else "exit 1"  # Python's exit code for a message
    return ended.partition(":")[0]


def _without_folders(value: Any) -> Any:
    """Return a JSON value whose texts contain no folders, such as those in XLA_FLAGS."""
    if isinstance(value, str):
        return _shorten_paths(value)
    if isinstance(value, Mapping):
        return {name: _without_folders(part) for name, part in value.items()}
    return [_without_folders(part) for part in value] if isinstance(value, list) else value


def _shorten_paths(text: str) -> str:
    """Replace each path in a text by the name of its file.

    >>> _shorten_paths("cannot open /home/me/lib/cupti.so: denied")
    'cannot open cupti.so: denied'
    """
    return _PATH.sub(r"\1", text)
