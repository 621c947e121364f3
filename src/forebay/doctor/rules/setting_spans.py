"""The debug settings that were on in the profiled steps, with their lines."""

import re
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import EventKind, LedgerEvent, Line
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.loop_edits import disable_setting

__all__ = ["SettingSpan", "find_span", "switch_off"]

MIN_STEPS_SHARE = 0.5  # share of the profiled steps; a setting that was on in fewer steps does not matter
_TRUE = re.compile(r"\bTrue\b")


@dataclass(frozen=True, slots=True)
class SettingSpan:
    """How long a setting was on."""

    line: Line | None  # the line that switched it on; None if it was on before the script, or if the line is unknown
    share: float  # share of the profiled steps in which it was on


def find_span(view: CaptureView, setting: str) -> SettingSpan | None:
    """Return how long a setting was on; None if for less than MIN_STEPS_SHARE."""
    events = [event for event in view.events_of(EventKind.SETTING) if event.api == setting]
    if not events or view.steps is None:
        return None
    edges = view.steps.edges
    spans = Intervals([event.start for event in events], [event.end for event in events])
    share = float((spans.covered_lengths(edges[:-1], edges[1:]) > 0).mean())
    return SettingSpan(view.line(max(events, key=_length).line), share) if share >= MIN_STEPS_SHARE else None


def _length(event: LedgerEvent) -> int:
    return event.end - event.start


def switch_off(view: CaptureView, line: Line | None, setting: str, code: str) -> str:
    """Return code that switches a setting off on its line.

    This is the line with False instead of True, or a comment that asks to remove the line. If the line does not show
    the setting, return `code`.
    """
    name = setting.rpartition(".")[2]
    fitted = fit_line(view, line, lambda script, number: disable_setting(script, number, name))
    text = line.text if line is not None else ""
    if fitted or len(_TRUE.findall(text)) == 1:
        return fitted or _TRUE.sub("False", text)
    return f"# remove this line: {text}" if f"{name}(" in text else code
