"""How much of the time of a thread that only looks at the clock others take, who want the same cores."""

import time
from collections.abc import Callable

__all__ = ["MUCH", "taken_share"]

MUCH = 0.05  # of the time; where nothing else ran it was 0.01 to 0.02, loaders that fill their queues again
LOOK_SECONDS = 0.1  # whoever has slept is let run for some milliseconds first
GAP_SECONDS = 100e-6  # looking takes less than one of them; whoever takes the core keeps it for thousands


def taken_share(seconds: float = LOOK_SECONDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """The share of the time in which this thread stood still, seen from gaps between one look and the next.

    >>> looks = iter([0.0, 0.25, 0.25, 0.5, 0.5, 0.5])
    >>> taken_share(0.5, lambda: next(looks))
    1.0
    """
    began = last = clock()
    taken = 0.0
    while last < began + seconds:
        now = clock()
        taken += now - last if now - last > GAP_SECONDS else 0.0
        last = now
    return taken / (last - began)
