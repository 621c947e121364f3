"""The thread of a sampler, which calls a function repeatedly until `stop`.

The thread is not a `threading.Thread`, so that the script does not see it in `threading.enumerate`.
"""

import _thread
import gc
import sys
from collections.abc import Callable

__all__ = ["CollectorPause", "SamplingThread"]

# Before Python 3.12, allocating a frame object may run the garbage collector. A finalizer may then release the
# interpreter lock. The sampled thread continues and frees the frame that the sampler is reading, and the process
# crashes. Since Python 3.12 the collector runs only between bytecodes, so no pause is needed.
NEEDS_PAUSE = sys.version_info < (3, 12)
STOP_SECONDS = 1.0  # `stop` waits at most this long for the thread


class SamplingThread:
    """Calls `sample` between `start` and `stop`, without garbage collection if NEEDS_PAUSE.

    `sample` returns the seconds until its next call. If it raises an error, the thread passes the error to
    `on_failure` and ends. `on_failure` also gets the error if the thread cannot start.
    """

    def __init__(self, sample: Callable[[], float], on_failure: Callable[[Exception], None]) -> None:
        self._sample = sample
        self._on_failure = on_failure
        self._collector_pause = CollectorPause()
        self._is_running = False
        self._stop_signal = _thread.allocate_lock()  # `stop` releases it
        self._end_signal = _thread.allocate_lock()  # the thread releases it when it ends

    def start(self, seconds: float) -> None:
        """Start the thread. It takes the first sample after `seconds`."""
        self._is_running = True
        self._stop_signal.acquire()
        self._end_signal.acquire()
        try:
            _thread.start_new_thread(self._run, (seconds,))
        except RuntimeError as error:  # the process cannot start another thread
            self._end_signal.release()
            self.stop()
            self._on_failure(error)

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        if self._is_running:
            self._is_running = False
            self._stop_signal.release()
            self._end_signal.acquire(timeout=STOP_SECONDS)

    def forget(self) -> None:
        """Undo what the thread has changed, without ending the thread.

        Call this in a forked process, which does not have the thread.
        """
        self._is_running = False
        self._collector_pause.resume()

    def _run(self, seconds: float) -> None:
        try:
            while not self._stop_signal.acquire(timeout=seconds):
                with self._collector_pause:
                    seconds = self._sample()
        except Exception as error:  # must not reach the script
            self._on_failure(error)
        finally:
            self._end_signal.release()


class CollectorPause:
    """Pauses the garbage collector inside a `with` statement, if NEEDS_PAUSE.

    The statement should take less than 0.1 ms.
    """

    def __init__(self) -> None:
        self._is_paused = False

    def __enter__(self) -> None:
        if NEEDS_PAUSE and gc.isenabled():
            self._is_paused = True
            gc.disable()

    def __exit__(self, *_: object) -> None:
        self.resume()

    def resume(self) -> None:
        """Let the garbage collector run again, if this object has paused it.

        Call this in a process that was forked inside the `with` statement.
        """
        if self._is_paused:
            self._is_paused = False
            gc.enable()
