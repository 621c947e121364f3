"""Sentences about a run without a training loop, or about a script that ended early."""

from collections import Counter

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.model.capture import STILL_RUNNING
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_count, format_location, format_seconds, to_one_line, truncate

__all__ = ["describe_early_end", "describe_missing_loop"]

MAX_ERROR_LENGTH = 80  # characters of an error; the script has already printed the whole error
# Event kind -> noun. The report counts these events if the doctor found no loop.
_NOUNS = {
    EventKind.UPLOAD: "upload",
    EventKind.DOWNLOAD: "download",
    EventKind.MOVE: "move",
    EventKind.INPUT: "batch",
    EventKind.COMPILE: "compilation",
    EventKind.RUN: "compiled call",
    EventKind.SYNC: "wait for the device",
}
_PLURALS = {"batch": "batches", "wait for the device": "waits for the device"}


def describe_missing_loop(diagnosis: Diagnosis) -> list[str]:
    """State which calls the doctor recorded without a loop, and what to do next."""
    capture = diagnosis.view.capture
    if not diagnosis.view.frameworks and not capture.events:
        if describe_early_end(diagnosis):
            return ["The script had not imported a framework yet."]
        return [
            "The script imported no framework that the doctor supports (torch, tensorflow, keras, jax or cupy).",
            "Give the doctor the script that trains, or -m and its module.",
        ]
    counts = Counter(event.kind for event in capture.events)
    calls = [_format_count(counts[kind], noun) for kind, noun in _NOUNS.items() if counts[kind]]
    found = [
        f"In {format_seconds(capture.seconds)} the doctor saw {', '.join(calls) or 'no transfer and no wait'}.",
    ]
    if capture.window.untraced and capture.window.anchor is not None:
        return [*found, _describe_wrong_end(diagnosis.view, capture.window.anchor)]
    return [
        *found,
        "It finds a step by a call that repeats at least four times: an optimizer step, a batch from a loader, "
        "a compiled call, a copy, or a value read back. Let the script run for more steps.",
    ]


def _describe_wrong_end(view: CaptureView, anchor: tuple[str, str, int]) -> str:
    """Say that the doctor stopped recording, because it took wrong calls for steps.

    Here, more steps of the script would not help.
    """
    _, api, number = anchor
    line = view.line(number)
    where = f"{api} ({format_location(line, view.capture.script)})" if line else api
    return (
        f"Then it stopped recording, because it took {where} for the end of a step, but these calls form no steps. "
        "Run the doctor again with a larger --warm-up, so that it skips the start of the script."
    )


def describe_early_end(diagnosis: Diagnosis) -> str:
    """Say that the script ended early, or return "" if it ran to its end."""
    ended = to_one_line(diagnosis.view.capture.ended)
    if ended == "done":
        return ""
    error = truncate(ended.rstrip(".: "), MAX_ERROR_LENGTH)
    event = f"was {ended}" if ended in ("interrupted", "terminated", STILL_RUNNING) else f"ended with {error}"
    stop = "" if event.endswith(".") else "."
    return f"The script {event}{stop} This report covers the run up to that point."


def _format_count(count: int, noun: str) -> str:
    """Format a number and a noun of `_NOUNS`. `_PLURALS` has the irregular plurals."""
    return f"{count:,} {_PLURALS[noun]}" if count != 1 and noun in _PLURALS else format_count(count, noun)
