"""When a thread that runs Python may work beside the training loop. Pure: it is told times and says yes or no.

A thread that runs Python all the time makes a launch-bound training step many times slower, because both need the
interpreter; beside a step that waits for a device it costs nothing. Which of the two a consumer is cannot be asked, so
it is tried: some steps are left quiet, some are worked beside, and their times are compared.
"""

import threading
import time
from dataclasses import dataclass, field
from statistics import median

__all__ = ["Consumer", "Pace"]

TRIAL_STEPS = 5  # steps of each kind that a comparison rests on
WORTHWHILE_SECONDS = 100e-6  # a consumer that is back sooner may as well be waited for
SLOWED = 1.1  # a step this much longer counts as held back
FIRST_REST = 32  # steps until the next trial; doubled each time the answer stays the same
LONGEST_REST = 1024
BREATH_SECONDS = 50e-6  # a pause in which another thread gets the interpreter


@dataclass(slots=True)
class Pace:
    """Says whether to work while the consumer is away; while it waits, working is always right."""

    _quiet: list[float] = field(default_factory=list)
    _beside: list[float] = field(default_factory=list)
    _trying: bool = True
    _ahead: bool = False
    _rest: int = FIRST_REST
    _rested: int = 0

    @property
    def beside(self) -> bool:
        """Whether to go on working while the consumer is away."""
        return self._ahead if not self._trying else len(self._quiet) >= TRIAL_STEPS

    def step(self, seconds: float) -> None:
        """The consumer was away for so long, a batch."""
        if not self._trying:
            self._rested += 1
            if self._rested >= self._rest:
                self._begin_trial()
            return
        (self._beside if self.beside else self._quiet).append(seconds)
        if len(self._beside) >= TRIAL_STEPS:
            quiet = median(self._quiet)
            self._judge(quiet >= WORTHWHILE_SECONDS and median(self._beside) <= SLOWED * quiet)

    def _begin_trial(self) -> None:
        self._trying, self._quiet, self._beside = True, [], []

    def _judge(self, ahead: bool) -> None:
        self._rest = min(self._rest * 2, LONGEST_REST) if ahead == self._ahead else FIRST_REST
        self._ahead, self._trying, self._rested = ahead, False, 0


class Consumer:
    """What a collecting thread knows of whoever takes its groups."""

    def __init__(self) -> None:
        self.waiting = False
        self._pace = Pace()
        self._go = threading.Event()
        self._left: float | None = None  # when it last went away, and with how many batches
        self._batches = 1

    def come(self) -> None:
        """It asks for a group."""
        if self._left is not None:
            self._pace.step((time.perf_counter() - self._left) / self._batches)

    def wait(self) -> None:
        """There is none yet: now is the time to work."""
        self.waiting = True
        self._go.set()

    def leave(self, batches: int) -> None:
        """It goes away with a group."""
        self.waiting = False
        self._left, self._batches = time.perf_counter(), batches
        if not self._pace.beside:
            self._go.clear()
        else:
            self._go.set()

    def release(self) -> None:
        """Nobody is to be held back any more: the feed closes, or begins anew."""
        self._left = None
        self._go.set()

    def give_way(self) -> None:
        """Called between pieces of Python work: rest while that would hold the consumer back."""
        self._go.wait()
        if not self.waiting:
            time.sleep(BREATH_SECONDS)
