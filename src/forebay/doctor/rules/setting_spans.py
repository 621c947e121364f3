"""The debug settings that were on in the profiled steps, and the lines that switched them on."""

import re
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.intervals import Intervals
from forebay.doctor.model.events import EventKind, LedgerEvent, Line
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.loop_edits import disable_setting

__all__ = ["SettingSpan", "find_span", "switch_off"]

MIN_STEPS_SHARE = 0.5  # of the profiled steps; a setting that was on in fewer steps is not reported
_TRUE = re.compile(r"\bTrue\b")


@dataclass(frozen=True, slots=True)
class SettingSpan:
    """How long a setting was on."""

    line: Line | None  # the line that switched it on; None if it was on before the script, or if the line is unknown
    share: float  # of the profiled steps


def find_span(view: CaptureView, setting: str) -> SettingSpan | None:
    """Return the span of a setting; None if it was on in less than MIN_STEPS_SHARE of the profiled steps."""
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
    """Return the line with False instead of True, or a request to remove it; `code` if neither fits the line."""
    name = setting.rpartition(".")[2]
    fitted = fit_line(view, line, lambda script, number: disable_setting(script, number, name))
    text = line.text if line is not None else ""
    if fitted or len(_TRUE.findall(text)) == 1:
        return fitted or _TRUE.sub("False", text)
    return f"# remove this line: {text}" if f"{name}(" in text else code
