"""A throttle, so that the thread that reads a stream does not slow the consumer.

The reading thread runs the user's Python code and holds the interpreter lock. This does not slow a consumer that waits
for a group. It may slow a consumer that works on a batch, so trials measure whether it does.
"""

import threading
import time
from dataclasses import dataclass, field
from statistics import median

__all__ = ["ConsumerThrottle", "OverlapPolicy"]

YIELD_SECONDS = 50e-6  # length of a sleep in which another thread can take the interpreter lock

# A step is the work of the consumer on one group. Its time is the mean per batch.
TRIAL_STEPS = 5  # a trial has this many steps without reading, and then as many with reading
MIN_STEP_SECONDS = 100e-6  # shortest median step that allows overlap; shorter steps leave no useful time to read
MAX_SLOWDOWN = 1.1  # largest accepted ratio of the step time with reading to the step time without
FIRST_PAUSE_STEPS = 32  # steps until the next trial if the result has changed; otherwise twice the previous number
MAX_PAUSE_STEPS = 1024  # limit of this doubling, so that a trial notices changed steps within this many steps


class ConsumerThrottle:
    """Blocks the reading thread at the times when it would slow the consumer."""

    def __init__(self) -> None:
        self.is_waiting = False  # True while the consumer waits for a group
        self._is_closed = False
        self._policy = OverlapPolicy()
        self._may_read = threading.Event()
        self._taken_at: float | None = None  # time in seconds at which the consumer took its last group
        self._taken_batches = 1  # number of batches of the group that the consumer took last

    def on_request(self) -> None:
        """Record that the consumer requests a group."""
        taken_at = self._taken_at  # a copy, because another thread may call reset() between the test and the use
        if taken_at is not None:
            self._policy.record_step((time.perf_counter() - taken_at) / self._taken_batches)

    def on_wait(self) -> None:
        """Record that no group is ready and the consumer waits."""
        self.is_waiting = True
        self._may_read.set()

    def on_take(self, batches: int) -> None:
        """Record that the consumer takes a group of this many batches."""
        self.is_waiting = False
        self._taken_at, self._taken_batches = time.perf_counter(), batches
        if self._policy.is_overlap_allowed or self._is_closed:
            self._may_read.set()
        else:
            self._may_read.clear()

    def reset(self) -> None:
        """Let the reading thread run until the consumer takes its next group."""
        self._taken_at = None
        self._may_read.set()

    def close(self) -> None:
        """Stop blocking the reading thread, now and later."""
        self._is_closed = True
        self._may_read.set()

    def yield_to_consumer(self) -> None:
        """Block while reading would slow the consumer. Then sleep once, unless the consumer waits.

        The reading thread calls this method before it reads a piece of a batch, or a ready-made batch.
        """
        self._may_read.wait()
        if not self.is_waiting:
            time.sleep(YIELD_SECONDS)


@dataclass(slots=True)
class OverlapPolicy:
    """Decides by trials whether reading may overlap with the consumer's steps.

    A trial compares the median times of steps without and with reading. While the result stays the same, the number of
    steps between two trials grows.
    """

    _seconds_without_reading: list[float] = field(default_factory=list)
    _seconds_with_reading: list[float] = field(default_factory=list)
    _is_in_trial: bool = True
    _is_allowed: bool = False  # result of the last trial; before the first trial, reading may not overlap
    _pause_steps: int = FIRST_PAUSE_STEPS
    _steps_since_trial: int = 0

    @property
    def is_overlap_allowed(self) -> bool:
        """True if reading may continue while the consumer is busy."""
        return len(self._seconds_without_reading) >= TRIAL_STEPS if self._is_in_trial else self._is_allowed

    def record_step(self, seconds: float) -> None:
        """Record the seconds per batch that the consumer worked on its last group."""
        if not self._is_in_trial:
            self._steps_since_trial += 1
            if self._steps_since_trial >= self._pause_steps:
                self._is_in_trial, self._seconds_without_reading, self._seconds_with_reading = True, [], []
            return
        (self._seconds_with_reading if self.is_overlap_allowed else self._seconds_without_reading).append(seconds)
        if len(self._seconds_with_reading) >= TRIAL_STEPS:
            usual = median(self._seconds_without_reading)
            self._end_trial(usual >= MIN_STEP_SECONDS and median(self._seconds_with_reading) <= MAX_SLOWDOWN * usual)

    def _end_trial(self, is_allowed: bool) -> None:
        is_unchanged = is_allowed == self._is_allowed
        self._pause_steps = min(self._pause_steps * 2, MAX_PAUSE_STEPS) if is_unchanged else FIRST_PAUSE_STEPS
        self._is_allowed, self._is_in_trial, self._steps_since_trial = is_allowed, False, 0
