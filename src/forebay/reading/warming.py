"""Files brought into the page cache from front to back, by a thread of its own.

A disk reads a file in order many times faster than page by page, as a mapping would have it read.
"""

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from forebay.reading.cached import cached_share

__all__ = ["Warmer"]

_STEP_NBYTES = 8 << 20  # asked for at a time: closing waits for no more than this
_WARM_SHARE = 0.95

_log = logging.getLogger(__name__)


class Warmer:
    """Asks the kernel for all of the files, once it is started; `warm` says whether they have all been kept."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.warm = False

    def start(self) -> None:
        """Begin, if nobody has yet."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="forebay-warming", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            shares = [self._warm(path) for path in self._paths]
        except OSError as error:  # rows go on to be read as before, and whatever is wrong with the file shows there
            _log.info("could not bring %s into the page cache: %s", error.filename, error)
            return
        self.warm = not self._stopped.is_set() and min(shares) >= _WARM_SHARE

    def _warm(self, path: Path) -> float:
        """Read one file ahead; the share of it that is in memory then."""
        file = os.open(path, os.O_RDONLY)
        try:
            for start in range(0, os.fstat(file).st_size, _STEP_NBYTES):
                if self._stopped.is_set():
                    break
                os.posix_fadvise(file, start, _STEP_NBYTES, os.POSIX_FADV_WILLNEED)
            return cached_share(file)
        finally:
            os.close(file)
