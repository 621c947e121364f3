"""What a collecting thread knows of whoever takes its groups: whether it waits, and whether it may be worked beside."""

import threading
import time
from dataclasses import dataclass, field
from statistics import median

__all__ = ["Consumer", "Pace"]

BREATH_SECONDS = 50e-6  # a pause in which another thread gets the interpreter


class Consumer:
    """Told when the consumer comes, waits and leaves; holds a collecting thread back where it would be in the way."""

    def __init__(self) -> None:
        self.waiting = False
        self._closed = False
        self._pace = Pace()
        self._go = threading.Event()
        self._left: float | None = None  # when it last went away, and with how many batches
        self._batches = 1

    def come(self) -> None:
        """It asks for a group."""
        left = self._left  # another thread may begin the feed anew meanwhile
        if left is not None:
            self._pace.step((time.perf_counter() - left) / self._batches)

    def wait(self) -> None:
        """There is none yet: now is the time to work."""
        self.waiting = True
        self._go.set()

    def leave(self, batches: int) -> None:
        """It goes away with a group."""
        self.waiting = False
        self._left, self._batches = time.perf_counter(), batches
        if self._pace.beside or self._closed:
            self._go.set()
        else:
            self._go.clear()

    def release(self) -> None:
        """The feed begins anew: nobody is held back until its first group is taken."""
        self._left = None
        self._go.set()

    def close(self) -> None:
        """Nobody is held back any more."""
        self._closed = True
        self._go.set()

    def give_way(self) -> None:
        """Called between pieces of Python work: rest while that would hold the consumer back."""
        self._go.wait()
        if not self.waiting:
            time.sleep(BREATH_SECONDS)


TRIAL_STEPS = 5  # steps of each kind that a comparison rests on
WORTHWHILE_SECONDS = 100e-6  # a consumer that is back sooner may as well be waited for
SLOWED = 1.1  # a step this much longer counts as held back
FIRST_REST = 32  # steps until the next trial; doubled each time the answer stays the same
LONGEST_REST = 1024


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
