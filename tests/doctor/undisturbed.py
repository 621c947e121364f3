"""Scripts watched again where the machine did something else: that is no fault of theirs, and may hide one."""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TypeVar

from forebay.doctor.analyse.steps import find_steps
from forebay.doctor.model.capture import Capture

__all__ = ["undisturbed"]

MOST_TRIES = 6  # more workers than cores may run beside it
LITTLE = 0.1  # of a loop, in one of its steps
LONG = 3  # times the median: shorter ones may be the script's own
Answer = TypeVar("Answer")


def undisturbed(
    watch: Callable[[], tuple[Capture, Answer]], right: Callable[[Capture], bool]
) -> tuple[Capture, Answer]:
    """The capture that is judged right and in which no step was held up for long, or comes next to that.

    And what came with it. What is never judged right is a fault of the doctor's, and left for the tests to name.
    """
    seen = []
    for _ in range(MOST_TRIES):
        capture, answer = watch()
        amiss = (not right(capture), _held_up(capture))
        seen.append((amiss, capture, answer))
        if amiss <= (False, LITTLE):
            break
    _, capture, answer = min(seen, key=lambda found: found[0])
    return capture, answer


def _held_up(capture: Capture) -> float:
    """How much longer the longest step took than the others, as a part of all of them."""
    steps = find_steps(capture)
    if steps is None:
        return 0.0
    lengths = [after - before for before, after in pairwise(steps.edges)]
    usual = median(lengths)
    return (max(lengths) - usual) / (usual * len(lengths)) if max(lengths) > LONG * usual > 0 else 0.0
