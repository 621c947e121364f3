"""Histories of steps for tests: series of step times with the lines that they execute."""

from dataclasses import replace
from random import Random

from forebay.doctor.capture.history_recorder import HistoryRecorder
from forebay.doctor.model.step_history import StackFrame

START = 1_000_000_000  # nanoseconds
# The stack of a training loop: lines 1 and 2 run in all steps. Line 3 calls a function whose line 4 calls a library.
FRAMES = (
    StackFrame(-1, 0),
    StackFrame(0, 1),
    StackFrame(0, 2),
    StackFrame(0, 3),
    StackFrame(3, 4),
    StackFrame(4, -1, "torch.serialization.save"),
)
FORWARD, BACKWARD, CALL, SAVE = 1, 2, 3, 5  # indices of FRAMES


def recorded(series, *, sample_seconds=0.005, frames=FRAMES, steps=1):
    """Return the history of steps. Each step is a list of frames with their durations in milliseconds.

    Samples come at random times, `sample_seconds` apart on average. Each item of `series` counts as `steps` steps that
    were timed together.
    """
    recorder, now, rng = HistoryRecorder(), START, Random(0)
    recorder.add_end(now, 0)
    next_sample = now
    for step in series:
        for frame, ms in step:
            now += int(ms * 1e6)
            while next_sample < now:
                recorder.add_sample(next_sample, frame)
                next_sample += int(sample_seconds * rng.uniform(0.5, 1.5) * 1e9)
        recorder.add_end(now, steps)
    return recorder.history(frames)


def monitored(capture, series, **given):
    """Return a capture with the history of these steps."""
    return replace(capture, history=recorded(series, **given))


def calling(function, line=3):
    """Return frames like FRAMES in which a line of the loop calls a function of a library."""
    return (*FRAMES[:3], StackFrame(0, line), StackFrame(3, -1, function))


def usual(ms=10.0):
    return [(FORWARD, 0.4 * ms), (BACKWARD, 0.6 * ms)]


def with_pauses(count, every, ms, *, frame=SAVE, usual_ms=10.0):
    """Return `count` steps. Every n-th step (`every`) first executes another frame for `ms` milliseconds."""
    return [[(frame, ms), *usual(usual_ms)] if step % every == every - 1 else usual(usual_ms) for step in range(count)]


def at_random(count, share, ms, *, frame=SAVE, seed=0):
    """Return `count` steps. A random share of them first executes another frame for `ms` milliseconds."""
    rng = Random(seed)
    return [[(frame, ms), *usual()] if rng.random() < share else usual() for _ in range(count)]


def noisy(steps, spread=0.2, seed=0):
    """Return the steps with random durations. With a large `spread`, some steps are long."""
    rng = Random(seed)
    return [[(frame, ms * rng.lognormvariate(0, spread)) for frame, ms in step] for step in steps]


def growing(count, first_ms, last_ms, *, frame=BACKWARD, other_ms=5.0):
    """Return `count` steps. One frame takes `first_ms` in the first step and about `last_ms` in the last step."""
    slope = (last_ms - first_ms) / count
    return [[(FORWARD, other_ms), (frame, first_ms + slope * step)] for step in range(count)]
