"""Records the history of unprofiled steps: their times, and samples of the loop.

A hook appends the end of each step to a queue. A thread takes the ends from the queue and samples the stack of the loop
about 20 times per second. In a step that takes longer than usual, the thread samples more often: the line of a rare
pause needs several samples. The longer the step takes, the rarer its samples become. So sampling costs almost nothing
after the end of the loop, which looks like one long step.
"""

import _thread
import sys
from collections import deque
from collections.abc import Callable
from math import ceil
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.call_stacks import CallStacks
from forebay.doctor.capture.history_recorder import LONG_SHARE, HistoryRecorder
from forebay.doctor.capture.sampling_thread import SamplingThread
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.step_history import StepHistory

__all__ = ["StepMonitor", "steps_per_measurement"]

SECONDS = 0.05  # between two samples, on average
LONG_STEP_SECONDS = 0.005  # between the first samples of a long step
LONG_STEP_SHARE = 0.05  # between two later samples, as a share of the time since the long step began
MAX_SECONDS = 2.0  # between two samples, at most
MAX_ENDS = 100_000  # step ends in the queue, which the thread empties often
MAX_HOOK_SHARE = 0.003  # share of a step that the hook calls in it may take
MAX_MEASURED_STEPS = 64  # steps that are measured together, at most
# Seconds of a hook call on a small ARM machine, by the kind of its event. Hooks of other kinds take too long.
CALL_SECONDS = {EventKind.STEP: 6e-6, EventKind.INPUT: 2e-5, EventKind.RUN: 6e-5}
SKIPPED_CALL_SECONDS = 5e-7  # of a hook call that the ledger skips


def steps_per_measurement(kind: str, usual_seconds: float, calls: int) -> int:
    """Return how many steps to measure together, so that hooks cost almost nothing.

    Return 0 if the hooks cost too much with any number. `kind` is that of the events that end the steps. `calls` is the
    number of hook calls per step that the ledger can skip.
    """
    call_seconds, most_seconds = CALL_SECONDS.get(EventKind(kind)), MAX_HOOK_SHARE * usual_seconds
    if call_seconds is None or most_seconds <= calls * SKIPPED_CALL_SECONDS:
        return 0
    steps = ceil(max(1, calls) * call_seconds / most_seconds)
    return steps if steps == 1 or (calls and steps <= MAX_MEASURED_STEPS) else 0


class StepMonitor:
    """Records steps between `start` and `stop`."""

    def __init__(self, lines: SourceLines, on_failure: Callable[[Exception], None]) -> None:
        """If an error ends the sampling, the monitor passes it to `on_failure`."""
        self._stacks = CallStacks(lines)
        self._recorder = HistoryRecorder()
        self._recorder_lock = _thread.allocate_lock()
        self._ends: deque[tuple[int, int]] = deque(maxlen=MAX_ENDS)  # time (ns) and number of steps
        self._block_steps = 1  # steps of the last measurement
        self._random = Random(0)  # separate, so that the script draws the same numbers as without the doctor
        self._loop_thread = 0
        self._is_after_long_step = False
        self._thread = SamplingThread(lambda: self._sample(perf_counter_ns()), on_failure)

    def start(self) -> None:
        """Start to sample the current thread, which runs the loop."""
        self._loop_thread = _thread.get_ident()
        self._thread.start(SECONDS)

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        self._thread.stop()

    def forget_thread(self) -> None:
        """Undo what the thread has changed. Call this in a forked process without the thread."""
        self._thread.forget()
        self._recorder_lock = _thread.allocate_lock()

    def add_end(self, time: int, steps: int = 1) -> None:
        """Report that `steps` steps ended together at `time` (ns).

        The first report only begins a step.
        """
        self._ends.append((time, steps))

    def discard_step(self) -> None:
        """Do not record the current step, because the doctor has worked in it."""
        self._ends.append((perf_counter_ns(), 0))

    def history(self) -> StepHistory | None:
        """Return the history so far; None if too few steps were measured."""
        with self._recorder_lock:
            self._record_ends()
            return self._recorder.history(tuple(self._stacks.frames))

    def _sample(self, now: int) -> float:
        """Sample the loop and return the seconds until the next sample.

        No frame may outlive this function: a frame keeps the variables of the script alive.
        """
        frame = sys._current_frames().get(self._loop_thread)
        try:
            index = self._stacks.find(frame) if frame is not None else -1
        except AttributeError:  # the frame of a thread that starts or ends now is incomplete
            index = -1
        with self._recorder_lock:
            self._record_ends(now)
            elapsed = (now - self._recorder.last_end) / 1e9
            longest = (1 + LONG_SHARE) * self._recorder.usual_seconds * self._block_steps
            is_long = 0 < longest < elapsed and self._recorder.last_end > 0
            self._recorder.add_sample(now, index, is_random=is_long or not self._is_after_long_step)
        self._is_after_long_step = is_long
        if is_long:
            return min(MAX_SECONDS, max(LONG_STEP_SECONDS, elapsed * LONG_STEP_SHARE))
        return SECONDS * self._random.uniform(0.5, 1.5)

    def _record_ends(self, until: int | None = None) -> None:
        """Pass the queued step ends to the recorder, up to `until` (ns); None: all."""
        while self._ends and (until is None or self._ends[0][0] <= until):
            time, steps = self._ends.popleft()
            self._block_steps = steps or self._block_steps
            self._recorder.add_end(time, steps)
