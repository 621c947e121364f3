"""Profiles a script again after a wrong diagnosis, because other processes may have disturbed the run."""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TypeVar

from forebay.doctor.analyse.steps import find_steps
from forebay.doctor.model.capture import Capture

__all__ = ["profile_until_right"]

MAX_TRIES = 6  # runs; other test workers may share the cores
LONG_STEP = 3  # times the median step; the script itself may cause shorter delays
Result = TypeVar("Result")


def profile_until_right(
    profile: Callable[[], tuple[Capture, Result]], is_right: Callable[[Capture], bool]
) -> tuple[Capture, Result]:
    """Profile up to MAX_TRIES times; return the first capture with a right diagnosis, and the result of its run.

    `profile` runs the script once and returns its capture and its result. If no diagnosis is right, return the run with
    the smallest delay of a step. The test of the diagnosis then fails.
    """
    runs = []
    for _ in range(MAX_TRIES):
        capture, result = profile()
        if is_right(capture):
            return capture, result
        runs.append((capture, result))
    return min(runs, key=lambda run: _delay_share(run[0]))


def _delay_share(capture: Capture) -> float:
    """Return how much the longest step exceeds the median step, as a share of the time of all steps.

    Return 0.0 if no step is longer than LONG_STEP median steps.
    """
    steps = find_steps(capture)
    if steps is None:
        return 0.0
    lengths = [after - before for before, after in pairwise(steps.edges)]
    usual = median(lengths)
    return (max(lengths) - usual) / (usual * len(lengths)) if max(lengths) > LONG_STEP * usual > 0 else 0.0
