"""The title and the evidence of findings about loops that wait for their input."""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.host_lines import lines_inside
from forebay.doctor.model.events import PYTHON_CODE
from forebay.doctor.model.formatting import format_count, format_percent, format_seconds
from forebay.doctor.rules.input_producers import (
    PY_DATASET,
    SERIAL_MAP,
    InputStage,
    count_cores,
    count_workers,
    reads_files,
)
from forebay.doctor.rules.wording import location

__all__ = ["FEWER_OPERATIONS", "MODERATE", "longest_line", "wait_evidence", "wait_title"]

MODERATE = 0.05  # share of a step; the rule does not report shorter waits for input
SEVERE = 0.2  # share of a step; the evidence calls waits from this share on severe
MAX_LINES = 3  # lines of a stage that the evidence names
FEWER_OPERATIONS = "one NumPy call per batch instead of one per row may help, or float32 instead of float64"
MIN_LINE_SHARE = 0.1  # share of the time of a stage; the evidence does not name lines with less

_STAGE_REASONS = {
    "row": "Python makes rows one by one",
    "batch": "Python makes batches one by one",
    "collate": "Python assembles rows into batches",
    "map": "a mapped Python function is slow",
    "generator": "a Python generator is slow",
    SERIAL_MAP: "rows are mapped one at a time",
    "workers": "its workers are too slow",
    "loader": "the loader itself is slow",
}


def wait_title(view: CaptureView, site: CallSite, wait: float, stage: InputStage) -> str:
    """Return the title of the finding. `wait` is in seconds per step."""
    reason = _STAGE_REASONS.get(stage.name, f"the stage {stage.name!r} is slow")
    if stage.name in ("row", "batch") and reads_files(view, stage):
        reason = "Python reads and decodes files one by one"
    if wait < MODERATE * view.step_seconds:
        return f"The loop shares its cores with the thread that makes its batches: {reason}"
    share = format_percent(wait / view.step_seconds)
    return f"The loop waits for {_loader_name(site, stage)} for {share} of the time: {reason}"


def _loader_name(site: CallSite, stage: InputStage) -> str:
    """Return the name of the loader that the user wrote.

    Keras may read a PyDataset of the user through tf.data. `site.api` then names tf.data.
    """
    owner = stage.line.function.rpartition(".")[0].rpartition(".")[2] if stage.line else ""
    return f"the PyDataset {owner}".rstrip() if stage.api == PY_DATASET else site.api


def wait_evidence(view: CaptureView, site: CallSite, wait: float, stage: InputStage, slowdown: float) -> Iterator[str]:
    """Yield sentences about the wait and the slow stage.

    `slowdown` is the most seconds per step that the stage takes from the loop, in addition to the wait.
    """
    share = wait / view.step_seconds
    degree = "severely" if share >= SEVERE else "moderately" if share >= MODERATE else "hardly"
    yield f"The loop is {degree} input-bound: it waits {format_seconds(wait)} of a step ({format_percent(share)})."
    if stage.is_python:
        yield _describe_stage(view, site, stage, slowdown)
        yield from _describe_lines(view, stage)
    if count_workers(site):
        yield (
            f"The loader has {format_count(count_workers(site), 'worker')} on "
            f"{format_count(count_cores(view), 'core')}."
        )


def _describe_stage(view: CaptureView, site: CallSite, stage: InputStage, slowdown: float) -> str:
    """Return how long the Python code of a stage runs, and where the loop waits."""
    place, seconds = location(view, site.line, site.api), format_seconds(stage.seconds)
    if not stage.on_other_thread:
        return f"The stage {stage.name!r} takes {seconds} of Python per step. The loop waits at {place}."
    meanwhile = "mostly while the loop computes" if slowdown else "also while the loop computes"
    also = f", and may slow the loop down by up to {format_seconds(slowdown)}" if slowdown else ""
    return (
        f"The stage {stage.name!r} runs {seconds} per step on another thread, {meanwhile}{also}. The loop waits at "
        f"{place}. Only one thread at a time can run Python (the GIL)."
    )


def _describe_lines(view: CaptureView, stage: InputStage) -> Iterator[str]:
    """Yield a sentence about the lines that take most time of a stage."""
    if named := _named_lines(view, stage):
        yield f"Samples of this stage: {', '.join(named)}."


def longest_line(view: CaptureView, stage: InputStage) -> list[str]:
    """Return the share and the place of the line that takes most time of a stage, as text; empty if unknown."""
    return _named_lines(view, stage)[:1]


def _named_lines(view: CaptureView, stage: InputStage) -> list[str]:
    """Return the share and the place of each line that takes most time of a stage, longest first."""
    lines = lines_inside(view, stage.site.events) if stage.site is not None else ()
    total = sum(line.seconds for line in lines)
    named = []
    for each in (line for line in lines[:MAX_LINES] if line.seconds >= MIN_LINE_SHARE * total):
        function = each.function.rpartition(".")[2] if each.function != PYTHON_CODE else ""
        called = f" ({function})" if function else ""
        named.append(f"{format_percent(each.seconds / total)} in {location(view, each.line, '')}{called}")
    return named
