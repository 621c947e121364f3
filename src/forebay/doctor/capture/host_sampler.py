"""Samples the lines of the script that the host executes, for the time that no hook explains.

A thread looks at the stacks of all other threads 200 times per second, at irregular intervals: regular ones could
always hit the same line of a loop. Each sample counts for the time since the previous one, because a C function that
holds the GIL delays the sampler.

The sampler needs the GIL. A thread gives it up at once when it waits, but else only after the switch interval, so that
lines that wait would get the samples of the lines before them. While the script has a single thread, the sampler
therefore shortens the switch interval. With several threads it does not, because they would switch more often.
"""

import _thread
import sys
from collections import deque
from collections.abc import Callable
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.called_functions import CalledFunctions
from forebay.doctor.capture.collector_pause import CollectorPause
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import HostSample

__all__ = ["HostSampler"]

SECONDS = 0.005  # between two samples, on average
MAX_SAMPLES = 20_000  # the sampler keeps the last ones: 100 seconds of a script with one thread
SWITCH_SECONDS = 2e-4  # switch interval while a single thread of the script runs
STOP_SECONDS = 1.0  # `stop` waits at most this long for the thread


class HostSampler:
    """Samples between `start` and `stop`.

    The thread is not a `threading.Thread`, so that the script does not see it in `threading.enumerate`.
    """

    def __init__(self, lines: SourceLines, on_failure: Callable[[Exception], None]) -> None:
        """`on_failure` is called with an error that has ended the sampling."""
        self._on_failure = on_failure
        self._functions = CalledFunctions(lines)
        self._samples: deque[HostSample] = deque(maxlen=MAX_SAMPLES)
        self._random = Random(0)  # its own, so that the script draws the same numbers as without the doctor
        self._switch_seconds = 0.0  # switch interval of the script; 0.0 while it applies
        self._collector_pause = CollectorPause()
        self._is_running = False
        self._stop_signal = _thread.allocate_lock()  # `stop` releases it
        self._end_signal = _thread.allocate_lock()  # the thread releases it when it ends

    @property
    def samples(self) -> tuple[HostSample, ...]:
        """The samples so far, in order of time."""
        return tuple(self._samples)

    def start(self) -> None:
        self._is_running = True
        self._stop_signal.acquire()
        self._end_signal.acquire()
        _thread.start_new_thread(self._run, ())

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        if self._is_running:
            self._is_running = False
            self._stop_signal.release()
            self._end_signal.acquire(timeout=STOP_SECONDS)

    def forget_thread(self) -> None:
        """Undo what the sampler has changed. Call this in a forked process, which has no such thread."""
        self._is_running = False
        self._restore_switch_interval()
        self._collector_pause.resume()

    def _run(self) -> None:
        try:
            previous = perf_counter_ns()
            while not self._stop_signal.acquire(timeout=SECONDS * self._random.uniform(0.5, 1.5)):
                now = perf_counter_ns()
                with self._collector_pause:
                    self._sample(now, now - previous)
                previous = now
        except Exception as error:  # must not reach the script
            self._on_failure(error)
        finally:
            self._restore_switch_interval()
            self._end_signal.release()

    def _sample(self, now: int, nanoseconds: int) -> None:
        """Add a sample of each thread that executes a line of the script.

        No frame may outlive this function: a frame keeps the variables of the script alive.
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
        """Restore the switch interval of the script, unless the script has set another one since."""
        if self._switch_seconds and abs(sys.getswitchinterval() - SWITCH_SECONDS) < SWITCH_SECONDS / 10:
            sys.setswitchinterval(self._switch_seconds)
        self._switch_seconds = 0.0
