"""When a reading thread may run Python code without slowing the consumer.

A stream is read by Python code, which holds the interpreter lock. While the consumer waits for a group, reading
cannot slow it. While the consumer works on a batch, reading may slow it down; trials find out whether it does.
"""

import threading
import time
from dataclasses import dataclass, field
from statistics import median

__all__ = ["ConsumerThrottle", "OverlapPolicy"]

YIELD_SECONDS = 50e-6  # a sleep in which another thread takes the interpreter

TRIAL_STEPS = 5  # steps of each kind that a comparison needs
MIN_STEP_SECONDS = 100e-6  # with shorter steps the consumer waits again so soon that overlap is not needed
MAX_SLOWDOWN = 1.1  # ratio of step times; above it, reading counts as slowing the consumer
FIRST_PAUSE_STEPS = 32  # steps until the next trial; doubled while the result stays the same
MAX_PAUSE_STEPS = 1024


class ConsumerThrottle:
    """Blocks the reading thread while it would slow the consumer."""

    def __init__(self) -> None:
        self.is_waiting = False
        self._closed = False
        self._policy = OverlapPolicy()
        self._may_read = threading.Event()
        self._taken_at: float | None = None  # when the consumer took its last group
        self._taken_batches = 1

    def on_request(self) -> None:
        """Record that the consumer requests a group."""
        taken_at = self._taken_at  # another thread may call reset() meanwhile
        if taken_at is not None:
            self._policy.record_step((time.perf_counter() - taken_at) / self._taken_batches)

    def on_wait(self) -> None:
        """Record that no group is ready and the consumer waits."""
        self.is_waiting = True
        self._may_read.set()

    def on_take(self, batches: int) -> None:
        """Record that the consumer takes a group."""
        self.is_waiting = False
        self._taken_at, self._taken_batches = time.perf_counter(), batches
        if self._policy.overlap_allowed or self._closed:
            self._may_read.set()
        else:
            self._may_read.clear()

    def reset(self) -> None:
        """Restart: allow reading until the consumer takes the first group."""
        self._taken_at = None
        self._may_read.set()

    def close(self) -> None:
        """Never block the reading thread again."""
        self._closed = True
        self._may_read.set()

    def yield_to_consumer(self) -> None:
        """Block while reading would slow the consumer. Call this between pieces of Python work."""
        self._may_read.wait()
        if not self.is_waiting:
            time.sleep(YIELD_SECONDS)


@dataclass(slots=True)
class OverlapPolicy:
    """Decides by trials whether reading may overlap with the consumer's steps.

    A trial compares steps without and with reading. Trials repeat after longer and longer pauses.
    """

    _quiet_seconds: list[float] = field(default_factory=list)
    _overlap_seconds: list[float] = field(default_factory=list)
    _in_trial: bool = True
    _allowed: bool = False
    _pause_steps: int = FIRST_PAUSE_STEPS
    _steps_since_trial: int = 0

    @property
    def overlap_allowed(self) -> bool:
        """True if reading may continue while the consumer is busy."""
        return len(self._quiet_seconds) >= TRIAL_STEPS if self._in_trial else self._allowed

    def record_step(self, seconds: float) -> None:
        """Record how long the consumer was busy with a batch."""
        if not self._in_trial:
            self._steps_since_trial += 1
            if self._steps_since_trial >= self._pause_steps:
                self._in_trial, self._quiet_seconds, self._overlap_seconds = True, [], []
            return
        (self._overlap_seconds if self.overlap_allowed else self._quiet_seconds).append(seconds)
        if len(self._overlap_seconds) >= TRIAL_STEPS:
            quiet = median(self._quiet_seconds)
            self._end_trial(quiet >= MIN_STEP_SECONDS and median(self._overlap_seconds) <= MAX_SLOWDOWN * quiet)

    def _end_trial(self, allowed: bool) -> None:
        unchanged = allowed == self._allowed
        self._pause_steps = min(self._pause_steps * 2, MAX_PAUSE_STEPS) if unchanged else FIRST_PAUSE_STEPS
        self._allowed, self._in_trial, self._steps_since_trial = allowed, False, 0
