"""When a thread that runs Python may work beside the training loop. Pure: it is told times and says yes or no.

A thread that runs Python all the time makes a launch-bound training step many times slower, because both need the
interpreter; beside a step that waits for a device it costs nothing. Which of the two a consumer is cannot be asked, so
it is tried: some steps are left quiet, some are worked beside, and their times are compared.
"""

from dataclasses import dataclass, field
from statistics import median

__all__ = ["Pace"]

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
