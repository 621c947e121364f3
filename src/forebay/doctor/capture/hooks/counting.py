"""Operations that run one by one, counted: one event for all that a line started in some milliseconds."""

import threading
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.events import Kind

__all__ = ["TINY_NS", "TOGETHER_NS", "Counted", "Counts"]

TOGETHER_NS = 5_000_000  # what runs in so long is written down as one event a line
TINY_NS = 20_000  # an operation that is over by then has done little but start
LONGEST_CALLING_NS = 1_000_000  # Python that takes longer between two operations does something else than call them
EXACTLY = 1000  # operations of a thread whose lines are all looked for; of those that follow, some
LONGEST_STRIDE = 15  # from one to the next; at random, or in a loop of so many it would always be the same line
_strides = Random(0)


class Counts:
    """What a thread has run since it was last written down."""

    __slots__ = ("calling", "count", "inside", "last", "left", "lines", "since", "spent", "stride", "tiny")

    def __init__(self) -> None:
        self.since = self.last = perf_counter_ns()
        self.lines: dict[int, list[int]] = {}  # count, tiny ones, nanoseconds inside and of calling, end of the last
        self.left = EXACTLY  # operations until lines are sampled
        self.stride = 1
        self.inside = False  # an operation; what that calls in turn is not counted
        self.forget()

    def forget(self) -> None:
        """Begin with those that no line is known of."""
        self.count = self.tiny = self.spent = self.calling = 0

    def add(self, start: int, end: int, dispatching: int = 0) -> None:
        """One more; of its own time, some nanoseconds may go on calling it too."""
        spent, calling, self.last = end - start, start - self.last, end
        calling = calling if calling < LONGEST_CALLING_NS else 0
        self.count += 1
        self.tiny += spent < TINY_NS or spent < calling  # on a slow machine all of it takes longer
        self.spent += spent - dispatching
        self.calling += calling + dispatching

    def belong(self, line: int, end: int) -> None:
        """Those that no line was known of are this one's."""
        counts = self.lines.setdefault(line, [0, 0, 0, 0, 0])
        counts[0] += self.count
        counts[1] += self.tiny
        counts[2] += self.spent
        counts[3] += self.calling
        counts[4] = end
        self.left -= self.count
        self.stride = 1 if self.left > 0 else _strides.randint(1, LONGEST_STRIDE)
        self.forget()


class Counted(threading.local):
    """What each thread has run. Asked for one thing only: what is a thread's own is found slowly."""

    def __init__(self) -> None:
        self.counts = Counts()

    def write(self, ledger: Ledger, api: str) -> None:
        """Write down what was counted on this thread."""
        counts = self.counts
        lines, counts.lines, counts.since = counts.lines, {}, perf_counter_ns()
        for line, (count, tiny, spent, calling, end) in lines.items():
            detail = {"count": count, "tiny": tiny, "calling_seconds": calling / 1e9}
            ledger.add(Kind.OPS, api, end - spent, end=end, detail=detail, line=line)
