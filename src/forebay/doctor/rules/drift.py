"""The rule for steps that become longer because one line handles ever more data.

The cost is the share of the run that the growth takes, times the step time. The cure removes the growth, so that all
steps of the run take as long as the first steps.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.drift import Drift, GrowingLine, find_drift, find_growing_line
from forebay.doctor.analyse.steps import Steps
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import shorten_run
from forebay.doctor.rules.avoidable_calls import DRAWING
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.step_edits import without_counter
from forebay.doctor.rules.wording import location, source_text

__all__ = ["examine", "growing_lines"]

SLOPE_STEPS = 1_000  # the report states the growth per this many steps
MIN_SHARE_AT_START = 0.01  # share of the line's time at the end; the report calls less at the start "almost no time"
_BACKWARD = ("backward", "torch.autograd.")  # parts of function names and of source text that show a backward pass

_DETACH_CODE = """\
total += loss.detach()   # not loss: its graph keeps all earlier steps
hidden = hidden.detach()   # before the next step uses it"""
_RUNNING_CODE = """\
total, count = total + value, count + 1   # a running mean, instead of the mean of all values
values = collections.deque(maxlen=1000)   # or keep only the last values"""
_ARRAY_CODE = """\
rows = np.empty((most_rows, width), np.float32)   # before the loop
rows[count % most_rows] = row   # in the loop: no conversion of all rows in each step"""


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if steps become longer and one line takes most of the growth."""
    found = _find_growth(view)
    if found is not None:
        drift, growing, line = found
        first, last = format_seconds(drift.first_seconds), format_seconds(drift.last_seconds)
        title = f"Steps become longer during the run, from {first} to {last}, because one line grows"
        # The growth takes time of the whole run, but `Finding.seconds` is the cost of one step.
        seconds = view.step_seconds * _cost_share(view, drift)
        cures = tuple(_cures(view, growing, line, seconds))
        yield Finding("drift", title, line, seconds, cures, tuple(_evidence(view, drift, growing, line)))


def _cost_share(view: CaptureView, drift: Drift) -> float:
    """Return the share of the run that the growth takes."""
    return min(1.0, drift.seconds_per_step / max(drift.mean_seconds, view.mean_seconds))


def growing_lines(view: CaptureView) -> set[Line]:
    """Return the line whose time this rule reports, as a set; empty without a finding."""
    found = _find_growth(view)
    return set() if found is None else {found[2]}


def _find_growth(view: CaptureView) -> tuple[Drift, GrowingLine, Line] | None:
    """Return the growth of the steps and the line that grows; None without growth."""
    history = view.capture.history
    if history is None or view.steps is None or not view.step_seconds:
        return None
    drift = find_drift(history.blocks, _steps_before_history(view, view.steps))
    if drift is None:
        return None
    growing = find_growing_line(history, drift)
    line = view.line(growing.line) if growing is not None else None
    return (drift, growing, line) if growing is not None and line is not None else None


def _steps_before_history(view: CaptureView, steps: Steps) -> int:
    """Return the number of steps before the history, which begins with the unprofiled steps."""
    window = view.capture.window
    recorded = sum(event.site == steps.anchor and event.end <= window.end for event in view.capture.events)
    return recorded + max(0, len(window.traced) - 1)


def _evidence(view: CaptureView, drift: Drift, growing: GrowingLine, line: Line) -> Iterator[str]:
    is_new = growing.first_seconds < MIN_SHARE_AT_START * growing.last_seconds
    first = "almost no time" if is_new else f"{format_seconds(growing.first_seconds)} per step"
    last = format_seconds(growing.last_seconds)
    what = f", in {growing.function}" if growing.function else ""
    place = location(view, line, "This line")
    yield f"The line that grows: {place} takes {first} at the start and {last} at the end{what}."
    growth = drift.last_seconds - drift.first_seconds
    slope = growth / drift.steps * SLOPE_STEPS
    of_run, of_last = format_percent(_cost_share(view, drift)), format_percent(growth / drift.last_seconds)
    yield (
        f"Over {drift.steps:,} unprofiled steps, the growth takes {of_run} of the run. At the end of the run, it takes "
        f"{format_seconds(growth)} of each step ({of_last}), and it goes on: at this rate, a step takes "
        f"{format_seconds(slope)} longer after each {SLOPE_STEPS:,} steps."
    )


def _cures(view: CaptureView, growing: GrowingLine, line: Line, seconds: float) -> Iterator[Cure]:
    basis = "the cure removes the growth, so that all steps of the run take as long as its first steps"
    for title, code in _advice(growing.function, source_text(line, "...")):
        yield Cure(title, code, basis=basis, changes=shorten_run(view, seconds))


def _advice(function: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the code of each cure for a line that grows."""
    if any(name in function or name in text for name in _BACKWARD):
        yield "detach what a step leaves for the next step", _DETACH_CODE
    elif DRAWING.includes(function):
        code = without_counter(f"{text}   # draw only the last values, or into the same figure", 1000)
        yield "draw figures only every 1000th step, and only the last values", code
    else:
        yield "keep a running result, or only the last values", _RUNNING_CODE
        yield "write new rows into an array that exists", _ARRAY_CODE
