"""What a collecting thread knows of whoever takes its groups: whether it waits, and whether it may be worked beside."""

import threading
import time

from forebay.pace import Pace

__all__ = ["Consumer"]

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
