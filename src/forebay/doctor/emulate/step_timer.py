"""Times the steps of a script that was changed for this purpose, and then ends it.

The changed script calls `mark` in each iteration of its loop (see `applied_code`). A process times one script.
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from time import perf_counter_ns
from typing import Any

from forebay.doctor.emulate.emulator import wait_for_devices

__all__ = ["mark", "step_seconds", "timed_fit"]

BLOCK_STEPS = 10  # steps between two waits for the device
WARM_UP_STEPS = 10  # the first steps compile functions, and start workers
MIN_BLOCKS, MIN_NS = 4, 2_000_000_000  # blocks and nanoseconds of the timed steps, at least
MAX_NS = 15_000_000_000  # after this time, one block is enough
_blocks: list[tuple[int, int]] = []  # steps and time (ns) at the end of each block
_steps = 0


def mark(steps: int = 1) -> None:
    """Report that `steps` steps begin. Raise SystemExit after enough steps."""
    global _steps
    due = _steps >= (_blocks[-1][0] + BLOCK_STEPS if _blocks else WARM_UP_STEPS)
    if due:
        wait_for_devices()
        _blocks.append((_steps, perf_counter_ns()))
        timed = _blocks[-1][1] - _blocks[0][1]
        if (len(_blocks) > MIN_BLOCKS and timed > MIN_NS) or (len(_blocks) > 1 and timed > MAX_NS):
            sys.exit(0)
    _steps += steps


def step_seconds() -> float | None:
    """Return the median time of a step over all blocks; None if the script made too few steps."""
    if len(_blocks) < 2:
        return None
    return median((end - start) / (after - before) for (before, start), (after, end) in pairwise(_blocks)) / 1e9


def timed_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fit` of a Keras model with a callback that calls `mark` for each batch."""
    import keras

    class Marks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        last = -1

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self.last = -1

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            mark(batch - self.last)
            self.last = batch

    def call(*args: Any, **kwargs: Any) -> Any:
        return fit(*args, **kwargs | {"callbacks": [*(kwargs.get("callbacks") or []), Marks()]})

    return call
