"""A pause of the garbage collector while a sampler reads the stacks of other threads.

Before Python 3.12, allocating a frame object may run the collector. A finalizer may then release the interpreter lock.
The sampled thread continues and frees the frame that the sampler is reading, and the process crashes. Since Python 3.12
the collector runs only between bytecodes, so no pause is needed.
"""

import gc
import sys

__all__ = ["CollectorPause"]

IS_NEEDED = sys.version_info < (3, 12)


class CollectorPause:
    """Pauses the collector inside a `with` statement, which should take less than 0.1 ms."""

    def __init__(self) -> None:
        self._is_paused = False

    def __enter__(self) -> None:
        if IS_NEEDED and gc.isenabled():
            self._is_paused = True
            gc.disable()

    def __exit__(self, *_: object) -> None:
        self.resume()

    def resume(self) -> None:
        """Let the collector run again, if this object has paused it. A forked process must call this."""
        if self._is_paused:
            self._is_paused = False
            gc.enable()
