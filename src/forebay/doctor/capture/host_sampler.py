"""Samples the lines of the script that the host executes.

The samples explain the time in which no hook records a call. A thread reads the stacks of all other threads 200 times
per second, at irregular intervals: regular intervals could always hit the same line of a loop. Each sample counts for
the time since the previous sample, because a C function that holds the GIL delays the sampler.

The sampler needs the GIL. A thread that begins to wait releases the GIL at once, but a thread that executes bytecode
releases it only after the switch interval (`sys.setswitchinterval`). With the default interval, the sampler would often
run only when the script reaches a line that waits. This line would then get the samples of the lines before it. So the
sampler shortens the switch interval while at most one thread executes lines of the script. If several threads execute
them, a short interval would cost time, because they would switch more often. So the sampler then keeps the interval of
the script.
"""

import _thread
import sys
from collections import deque
from collections.abc import Callable
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.called_functions import CalledFunctions
from forebay.doctor.capture.sampling_thread import SamplingThread
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import HostSample

__all__ = ["HostSampler"]

SECONDS = 0.005  # between two samples, on average
MAX_SAMPLES = 20_000  # the sampler keeps the latest samples: 100 seconds of a script with one thread
SWITCH_SECONDS = 2e-4  # switch interval while at most one thread executes lines of the script


class HostSampler:
    """Samples the lines of all threads between `start` and `stop`."""

    def __init__(self, lines: SourceLines, on_failure: Callable[[Exception], None]) -> None:
        """If an error ends the sampling, the sampler passes it to `on_failure`."""
        self._on_failure = on_failure
        self._functions = CalledFunctions(lines)
        self._samples: deque[HostSample] = deque(maxlen=MAX_SAMPLES)
        self._random = Random(0)  # separate, so that the script draws the same numbers as without the doctor
        self._switch_seconds = 0.0  # switch interval of the script; 0.0 while the sampler has not changed it
        self._sampled_at = 0  # nanoseconds; time of the last sample
        self._thread = SamplingThread(self._take_sample, self._fail)

    @property
    def samples(self) -> tuple[HostSample, ...]:
        """The samples so far, in order of time."""
        return tuple(self._samples)

    def start(self) -> None:
        self._sampled_at = perf_counter_ns()
        self._thread.start(self._draw_interval())

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        self._thread.stop()
        self._restore_switch_interval()

    def forget_thread(self) -> None:
        """Undo what the sampler has changed, without ending its thread.

        Call this in a forked process, which does not have the thread.
        """
        self._thread.forget()
        self._restore_switch_interval()

    def _draw_interval(self) -> float:
        """Return the seconds until the next sample."""
        return SECONDS * self._random.uniform(0.5, 1.5)

    def _take_sample(self) -> float:
        """Sample all threads, and return the seconds until the next sample."""
        now = perf_counter_ns()
        self._sample(now, now - self._sampled_at)
        self._sampled_at = now
        return self._draw_interval()

    def _fail(self, error: Exception) -> None:
        self._restore_switch_interval()
        self._on_failure(error)

    def _sample(self, now: int, nanoseconds: int) -> None:
        """Add a sample of each thread that executes a line of the script.

        Each sample is at the time `now` (ns) and stands for `nanoseconds`. No frame may outlive this function: a frame
        keeps the variables of the script alive.
        """
        own, threads = _thread.get_ident(), 0
        for thread, frame in sys._current_frames().items():
            if thread != own:
                try:
                    line, function = self._functions.find(frame)
                except AttributeError:  # the frame of a thread that starts or ends now is incomplete
                    continue
                if line >= 0:
                    self._samples.append(HostSample(now, nanoseconds, thread, line, function))
                    threads += 1
        self._adapt_switch_interval(threads)

    def _adapt_switch_interval(self, threads: int) -> None:
        """Shorten the switch interval, or restore it if several threads execute lines of the script."""
        if threads > 1:
            self._restore_switch_interval()
        elif not self._switch_seconds:
            self._switch_seconds = sys.getswitchinterval()
            sys.setswitchinterval(min(self._switch_seconds, SWITCH_SECONDS))

    def _restore_switch_interval(self) -> None:
        """Restore the switch interval of the script, unless the script has set another interval."""
        if self._switch_seconds and abs(sys.getswitchinterval() - SWITCH_SECONDS) < SWITCH_SECONDS / 10:
            sys.setswitchinterval(self._switch_seconds)
        self._switch_seconds = 0.0
