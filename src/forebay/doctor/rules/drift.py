"""The rule for steps that become longer during the run, because one line handles more and more data.

The cost is the share of the run that the growth takes, times the step time.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.drift import Drift, GrowingLine, find_drift, find_growing_line
from forebay.doctor.model.events import Line
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.cure_changes import shorten_run
from forebay.doctor.rules.avoidable_calls import DRAWING
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.wording import source_text

__all__ = ["examine", "growing_lines"]

SLOPE_STEPS = 1_000  # the report states the growth per this many steps
_BACKWARD = ("backward", "torch.autograd.")  # in the name of a function or in the text of a line

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
    found = _find(view)
    if found is not None:
        drift, growing, line = found
        mean = drift.first_seconds + drift.seconds_per_step
        seconds = view.step_seconds * drift.seconds_per_step / mean
        first, last = format_seconds(drift.first_seconds), format_seconds(drift.last_seconds)
        title = f"Steps become longer during the run, from {first} to {last}"
        cures = tuple(_cures(view, growing, line, seconds))
        yield Finding("drift", title, line, seconds, cures, tuple(_evidence(drift, growing)))


def growing_lines(view: CaptureView) -> set[Line]:
    """Return the lines whose time this rule reports."""
    found = _find(view)
    return set() if found is None else {found[2]}


def _find(view: CaptureView) -> tuple[Drift, GrowingLine, Line] | None:
    history = view.capture.history
    drift = find_drift(history.blocks) if history is not None and view.step_seconds else None
    if history is None or drift is None:
        return None
    growing = find_growing_line(history, drift)
    line = view.line(growing.line) if growing is not None else None
    return (drift, growing, line) if growing is not None and line is not None else None


def _evidence(drift: Drift, growing: GrowingLine) -> Iterator[str]:
    first, last = format_seconds(growing.first_seconds), format_seconds(growing.last_seconds)
    what = f", in {growing.function}" if growing.function else ""
    yield f"This line takes {first} per step at the start and {last} at the end{what}."
    # The times are medians of the first and of the last quarter of the run, whose middles are 3/4 of the run apart.
    slope = (drift.last_seconds - drift.first_seconds) / (drift.steps * 3 / 4) * SLOPE_STEPS
    cost = drift.seconds_per_step / (drift.first_seconds + drift.seconds_per_step)
    yield (
        f"Over {drift.steps:,} unprofiled steps, the growth takes {format_percent(cost)} of the run. At this rate, a "
        f"step takes {format_seconds(slope)} longer after each {SLOPE_STEPS:,} steps."
    )


def _cures(view: CaptureView, growing: GrowingLine, line: Line, seconds: float) -> Iterator[Cure]:
    for title, code in _advice(growing.function, source_text(line, "...")):
        basis = "the mean step time of the run, less the step time at its start"
        yield Cure(title, code, basis=basis, changes=shorten_run(view, seconds))


def _advice(function: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the titles and the code of cures for a line that grows."""
    if any(name in function or name in text for name in _BACKWARD):
        yield "detach what a step leaves for the next step", _DETACH_CODE
    elif DRAWING.includes(function):
        code = f"if step % 1000 == 0:\n    {text}   # draw only the last values, or into the same figure"
        yield "draw figures only every 1000th step, and only the last values", code
    else:
        yield "keep a running result, or only the last values", _RUNNING_CODE
        yield "write new rows into an array that exists", _ARRAY_CODE
