"""Files unpacked ahead of need, several at once: the order is known, so the files of coming groups are.

Threads unpack one file after the other, in the order in which groups will need them, as long as what is unpacked and
still due may be held; a file is kept open until the rows of it that were foreseen have been gathered. All that is a
hint: a file that was not got to is unpacked by whoever asks for a row of it.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeAlias

from forebay.core.machine import Machine
from forebay.core.rows import Rows

__all__ = ["Unpackable", "Unpacking"]

Counts: TypeAlias = Mapping[int, int]  # rows of each file

_log = logging.getLogger(__name__)


class Unpackable(Protocol):
    """A source that holds its rows in memory once they were unpacked."""

    def decompress(self) -> None:
        """Do it now, if nobody did; from any thread."""
        ...


class DecompressAhead:
    """Unpacks the files of coming groups within a budget, until it is closed."""

    def __init__(
        self,
        coming: Iterator[Rows],
        count: Callable[[Rows], Counts],
        use: Callable[[int], AbstractContextManager[Any]],  # a file's source, open meanwhile: an `Unpackable`
        *,
        nbytes: Sequence[int],  # of each file, unpacked
        budget_nbytes: int,
    ) -> None:
        self._coming, self._count, self._use = coming, count, use
        self._nbytes, self._budget_nbytes = nbytes, budget_nbytes
        self._due: dict[int, int] = {}  # rows of files that were foreseen and not gathered yet
        self._uses: dict[int, ExitStack] = {}  # what keeps those files open
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._files = self._wanted()
        self.closed = False
        threads = min(Machine.detect().cores, len(nbytes))
        for number in range(threads):
            threading.Thread(target=self._run, name=f"forebay-unpack-{number}", daemon=True).start()

    def gathered(self, file: int, rows: int) -> None:
        """So many rows of a file are not due any more."""
        with self._changed:
            if file not in self._due:
                return
            self._due[file] -= rows
            if self._due[file] <= 0:
                self._let_go(file)
                self._changed.notify_all()

    def close(self) -> None:
        """Let go of every file; threads end with what they are unpacking."""
        with self._changed:
            self.closed = True
            for file in list(self._due):
                self._let_go(file)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (file := self._next()) is not None:
                self._unpack(file)
        except Exception:  # only a hint is lost: whoever asks for the rows meets the same error, and is told
            _log.debug("unpacking ahead has stopped", exc_info=True)

    def _next(self) -> int | None:
        with self._turn:
            return next(self._files, None)

    def _unpack(self, file: int) -> None:
        with self._use(file) as source:  # when it ends, what the file holds now is counted
            self._keep_open(file)
            source.decompress()

    def _keep_open(self, file: int) -> None:
        with self._changed:
            if file in self._due:
                self._uses[file] = ExitStack()
                self._uses[file].enter_context(self._use(file))

    def _wanted(self) -> Iterator[int]:
        """Files to unpack, in the order of need; waits for room, and ends when all are due or nobody wants any."""
        for rows in self._coming:
            counts = self._count(rows)
            fresh = self._foresee(counts)
            if fresh is None:
                return
            yield from fresh
            if len(self._due) == len(self._nbytes):
                return

    def _foresee(self, counts: Counts) -> list[int] | None:
        """Take a group's rows as due, once its files may be held beside the others; those of them that were not."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._fits(counts))
            if self.closed:
                return None
            fresh = [file for file in counts if file not in self._due]
            for file, rows in counts.items():
                self._due[file] = self._due.get(file, 0) + rows
            return fresh

    def _fits(self, counts: Counts) -> bool:
        return sum(self._nbytes[file] for file in self._due.keys() | counts.keys()) <= self._budget_nbytes

    def _let_go(self, file: int) -> None:
        del self._due[file]
        uses = self._uses.pop(file, None)
        if uses is not None:
            uses.close()
