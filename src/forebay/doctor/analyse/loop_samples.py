"""Time of each line per step, from host samples of all steps of a loop.

The profiled steps of a fast loop get few samples. But the sampler already runs before the profiled steps: during the
warm-up, and while the hooks are off because the step detector waits until a call site has recurred for some seconds. No
events show which of these early samples are inside recorded calls. So `sampled_seconds` computes the time of a line
from all its samples, and subtracts the time of the line's recorded calls in the profiled steps.
"""

from collections import defaultdict

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of, unexplained_seconds
from forebay.doctor.analyse.loop_code import step_loop
from forebay.doctor.analyse.script_code import script_code
from forebay.doctor.analyse.steps import RECORDED_KINDS
from forebay.doctor.model.events import HostSample, LedgerEvent

__all__ = ["sampled_seconds", "trusted_share"]

FIRST_STEPS = 3  # of the loop; their samples are not used, because these steps compile functions
# A line with n samples gets only n / (n + DOUBTED_SAMPLES) of its sampled time, because a time from few samples is
# uncertain. This also prevents that one line gets the whole time, and that a cure which removes this line predicts a
# step of zero seconds.
DOUBTED_SAMPLES = 2

SecondsByFunction = dict[str, float]


def sampled_seconds(view: CaptureView, fewest: int, fewest_of_line: int) -> dict[int, SecondsByFunction]:
    """Return the seconds per step outside of recorded calls, by line index and function.

    The result is empty if the loop has fewer than `fewest` samples. Lines with fewer than `fewest_of_line` samples are
    left out.
    """
    samples = _loop_samples(view)
    if len(samples) < fewest:
        return {}
    by_line: dict[int, list[HostSample]] = defaultdict(list)
    for sample in samples:
        by_line[sample.line].append(sample)
    nanoseconds = sum(sample.nanoseconds for sample in samples)
    seconds_per_ns = view.step_seconds / nanoseconds if nanoseconds else 0.0
    recorded = _recorded_seconds(view)
    found = {
        line: _subtract(_by_function(of_line, seconds_per_ns), recorded.get(line, 0.0))
        for line, of_line in by_line.items()
        if len(of_line) >= fewest_of_line
    }
    limited = _limit(found, unexplained_seconds(view))
    return {line: _scale(seconds, trusted_share(len(by_line[line]))) for line, seconds in limited.items()}


def trusted_share(samples: int) -> float:
    """Return the share of its sampled time that a line gets (see DOUBTED_SAMPLES)."""
    return samples / (samples + DOUBTED_SAMPLES)


def _loop_samples(view: CaptureView) -> list[HostSample]:
    """Return the samples of the loop's thread on lines of the loop, after its FIRST_STEPS."""
    steps = view.steps
    assert steps is not None
    ends = [event.end for event in view.capture.events if event.site == steps.anchor]
    start = ends[min(FIRST_STEPS, len(ends)) - 1] if ends else steps.start
    samples = [sample for sample in view.capture.samples if sample.thread == steps.thread and sample.time > start]
    lines = _loop_lines(view, {sample.line for sample in samples if steps.start < sample.time <= steps.end})
    return [sample for sample in samples if sample.line in lines]


def _loop_lines(view: CaptureView, sampled_lines: set[int]) -> set[int]:
    """Return the lines that the profiled steps executed, and those of their loop.

    Events and samples show the executed lines. The excerpt of the script, if there is one, shows the lines of the loop.
    """
    steps = view.steps
    assert steps is not None
    executed = {event.line for site in view.sites for event in site.events[:1]} | sampled_lines | {steps.anchor[2]}
    anchor = view.line(steps.anchor[2])
    code = script_code(view, anchor)
    statement = code.statement_at(anchor.number) if code is not None and anchor is not None else None
    loop = step_loop(code, statement) if code is not None and statement is not None else None
    if loop is None or anchor is None:
        return executed
    numbers = range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)
    lines = enumerate(view.capture.lines)
    return executed | {index for index, line in lines if line.file == anchor.file and line.number in numbers}


def _recorded_seconds(view: CaptureView) -> dict[int, float]:
    """Return the seconds per step of the recorded calls of each line."""
    events: dict[int, list[LedgerEvent]] = defaultdict(list)
    for event in (event for site in view.sites if site.kind in RECORDED_KINDS for event in site.events):
        events[event.line].append(event)
    return {line: cost_of(view, of_line) for line, of_line in events.items()}


def _by_function(samples: list[HostSample], seconds_per_ns: float) -> SecondsByFunction:
    seconds: SecondsByFunction = defaultdict(float)
    for sample in samples:
        seconds[sample.function] += sample.nanoseconds * seconds_per_ns
    return dict(seconds)


def _subtract(seconds: SecondsByFunction, recorded: float) -> SecondsByFunction:
    """Subtract the time of recorded calls from the seconds of the functions of a line.

    The seconds without a function name (the key "") are reduced first, because samples inside of compiled functions
    have no name.
    """
    unnamed = min(recorded, seconds.get("", 0.0))
    named = sum(each for function, each in seconds.items() if function)
    kept = max(0.0, 1 - (recorded - unnamed) / named) if named else 0.0
    return {function: each * kept if function else each - unnamed for function, each in seconds.items()}


def _limit(seconds: dict[int, SecondsByFunction], max_seconds: float) -> dict[int, SecondsByFunction]:
    """Scale all times down if their sum exceeds `max_seconds`; omit lines without time."""
    total = sum(each for by_function in seconds.values() for each in by_function.values())
    factor = min(1.0, max_seconds / total) if total else 0.0
    scaled = {line: _scale(found, factor) for line, found in seconds.items()}
    return {line: found for line, found in scaled.items() if sum(found.values()) > 0}


def _scale(seconds: SecondsByFunction, factor: float) -> SecondsByFunction:
    return {function: each * factor for function, each in seconds.items()}
