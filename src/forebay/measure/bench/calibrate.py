"""How long a step must be to just hide a copy: decided from what steps took, by whatever clock."""

from collections.abc import Callable
from math import ceil

__all__ = ["calibrate"]

SHORTEST, AIM, LONGEST = 1.0, 1.1, 1.2  # of the step over the copy
TRIES = 8


def calibrate(step_seconds: Callable[[int], float], copy_seconds: float) -> int:
    """How many products make a step that takes a little longer than the copy."""
    few, many = step_seconds(4), step_seconds(12)
    each = max((many - few) / 8, 1e-7)
    products = max(1, ceil((AIM * copy_seconds - (few - 4 * each)) / each))
    for _ in range(TRIES):
        share = step_seconds(products) / copy_seconds
        if SHORTEST <= share <= LONGEST:
            break
        products = max(1, round(products * AIM / share))
    return products
