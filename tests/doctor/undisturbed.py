"""Scripts watched again where the machine did something else in the middle of their loop: that is not their fault."""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import TypeVar

from forebay.doctor.analyse.steps import find_steps
from forebay.doctor.captured import Capture

__all__ = ["undisturbed"]

MOST_TRIES = 3
LITTLE = 0.05  # of a loop, in one of its steps
LONG = 3  # times the median: shorter ones may be the script's own
Answer = TypeVar("Answer")


def undisturbed(watch: Callable[[], tuple[Capture, Answer]]) -> tuple[Capture, Answer]:
    """The capture in which no step was held up for long, or that with the least of it; and what came with it."""
    seen = []
    for _ in range(MOST_TRIES):
        seen.append(watch())
        if _held_up(seen[-1][0]) <= LITTLE:
            break
    return min(seen, key=lambda found: _held_up(found[0]))


def _held_up(capture: Capture) -> float:
    """How much longer the longest step took than the others, as a part of all of them."""
    steps = find_steps(capture)
    if steps is None:
        return 0.0
    lengths = [after - before for before, after in pairwise(steps.edges)]
    usual = median(lengths)
    return (max(lengths) - usual) / (usual * len(lengths)) if max(lengths) > LONG * usual > 0 else 0.0
