"""Reading ahead of need: the order is known, so the ranges of coming groups are on their way before anybody asks.

A thread of its own is told which rows come next. It looks at as many groups together as its budget is worth, decides
which blocks to read whole for them, and holds the ranges of one group after the other until the budget is spent; a
group that was gathered gives its ranges back, and the next is held. All that is a hint: a group that was not got to, or
never heard of, is read when it is asked for.
"""

import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from forebay.core.spec import Array
from forebay.sources.objects.range_planner import Cut
from forebay.sources.objects.range_reader import Held, Reader
from forebay.sources.objects.stored_object import Piece

__all__ = ["Foreseen", "Foresight", "Rows", "take"]

Rows: TypeAlias = "Array | slice"
Key: TypeAlias = tuple[int, ...]  # a few of a group's rows

_PATIENCE_SECONDS = 1.0  # for a group to be foreseen that somebody asks for; rows that are never foreseen wait in vain
_MOST_MISSED = 1024  # groups that were not waited for any longer; those of other feeds are among them

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Foreseen:
    """The ranges of one group, column by column, held until it is released."""

    rows: int
    cuts: Sequence[Cut]
    held: list[list[Held]]
    reader: Reader

    @classmethod
    def of(cls, rows: Rows, cuts: Sequence[Cut], reader: Reader) -> "Foreseen":
        return cls(_count(rows), cuts, [reader.hold(cut.pieces) for cut in cuts], reader)

    def release(self) -> None:
        self.reader.release(chain.from_iterable(self.held))
        self.held = []


def take(foresights: Sequence["Foresight"], rows: Rows, reader: Reader) -> Foreseen | None:
    """What is held for a group, by whichever foresight; waits a moment for one that is just getting to it."""
    key = _key(rows)
    with reader.changed:
        for foresight in foresights:
            foresight.want(key, 1)
        reader.changed.notify_all()
        reader.changed.wait_for(
            lambda: _holder(foresights, key) or all(one.over for one in foresights), _PATIENCE_SECONDS
        )
        for foresight in foresights:
            foresight.want(key, -1)
        holder = _holder(foresights, key)
        if holder is not None:
            return holder.pop(key)
        for foresight in foresights:
            foresight.miss(key)
        return None


def _holder(foresights: Sequence["Foresight"], key: Key) -> "Foresight | None":
    return next((foresight for foresight in foresights if foresight.holds(key)), None)


class Foresight:
    """Holds the ranges of coming groups within a budget."""

    def __init__(
        self,
        coming: Iterator[Rows],
        cut: Callable[[Sequence[Rows]], Iterator[Sequence[Cut]]],
        reader: Reader,
        *,
        budget_nbytes: int,
        window_rows: int,
    ) -> None:
        self._coming, self._cut, self._reader = coming, cut, reader
        self._budget_nbytes, self._window_rows = budget_nbytes, window_rows
        self._foreseen: defaultdict[Key, deque[Foreseen]] = defaultdict(deque)
        self._rows = 0  # of all groups that are foreseen
        self._missed: Counter[Key] = Counter()
        self._wanted: Counter[Key] = Counter()
        self.closed = self._ended = False
        self._lock = reader.changed
        self._thread = threading.Thread(target=self._run, name="forebay-ahead", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether nothing more will be foreseen."""
        return self.closed or self._ended

    def holds(self, key: Key) -> bool:
        """Whether a group's ranges are held; asked, like all that follows, with the reader's lock."""
        return key in self._foreseen

    def want(self, key: Key, change: int) -> None:
        """Somebody begins (1) or ceases (-1) to wait for a group; in its turn it is then held, whatever the budget."""
        self._wanted.update({key: change})
        self._wanted += Counter()  # which drops what has come to nothing

    def miss(self, key: Key) -> None:
        """A group was read without us, and need not be held any more."""
        if not self.over and len(self._missed) < _MOST_MISSED:
            self._missed[key] += 1

    def pop(self, key: Key) -> Foreseen:
        """What is held for a group, for the caller to release."""
        waiting = self._foreseen[key]
        found = waiting.popleft()
        if not waiting:
            del self._foreseen[key]
        self._rows -= found.rows
        self._lock.notify_all()
        return found

    def close(self) -> None:
        """Give everything back; the thread ends by itself."""
        with self._lock:
            self.closed = True
            left = [foreseen for waiting in self._foreseen.values() for foreseen in waiting]
            self._foreseen.clear()
            self._lock.notify_all()
        for foreseen in left:
            foreseen.release()

    def _run(self) -> None:
        try:
            while not self.closed and self._foresee_window():
                pass
        except Exception:  # only a hint is lost: whoever asks for the rows meets the same error, and is told
            _log.debug("reading ahead has stopped", exc_info=True)
        with self._lock:
            self._ended = True
            self._lock.notify_all()

    def _foresee_window(self) -> bool:
        """Several groups together; False at the end."""
        groups, count = list[Rows](), 0
        for rows in self._coming:
            groups.append(rows)
            count += _count(rows)
            if count >= self._window_rows or self.closed:
                break
        for rows, cuts in zip(groups, self._cut(groups), strict=True):
            if not self._admit(rows, cuts):
                return False
        return bool(groups)

    def _admit(self, rows: Rows, cuts: Sequence[Cut]) -> bool:
        """Hold a group's ranges as soon as they fit; False when nobody wants them any more."""
        key, fits = _key(rows), self._fit(_count(rows), {piece for cut in cuts for piece in cut.pieces})
        with self._lock:
            self._lock.wait_for(lambda: self.closed or self._is_urgent(key) or fits())
            if self.closed:
                return False
            if self._missed[key] > 0:
                self._missed -= Counter([key])
            else:
                self._foreseen[key].append(Foreseen.of(rows, cuts, self._reader))
                self._rows += _count(rows)
                self._lock.notify_all()
            return True

    def _is_urgent(self, key: Key) -> bool:
        """Whether somebody waits for a group, or has gone on without."""
        return self._wanted[key] > 0 or self._missed[key] > 0

    def _fit(self, count: int, pieces: Collection[Piece]) -> Callable[[], bool]:
        """Tells whether a group may be held too. One that is larger than the budget is held when nothing else is."""
        reader, more = self._reader, 0

        def fits() -> bool:
            nonlocal more
            if not self._foreseen and reader.nbytes == 0:
                return True
            if self._rows + count > 2 * self._window_rows:  # what tiers hold costs nothing, but has no end either
                return False
            if reader.nbytes + more > self._budget_nbytes:  # asked at every change, so not counted anew each time
                return False
            more = sum(piece.nbytes for piece in pieces if not reader.has(piece))
            return more == 0 or reader.nbytes + more <= self._budget_nbytes

        return fits


def _key(rows: Rows) -> Key:
    """Enough to tell a group from others; whoever takes it looks whether it has all its rows."""
    if isinstance(rows, slice):
        return rows.start, rows.stop
    step = max(1, len(rows) // 8)
    return len(rows), int(rows[-1]), *rows[::step].tolist()


def _count(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
