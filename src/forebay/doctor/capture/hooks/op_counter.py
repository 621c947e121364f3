"""Operations that run one by one, counted: one event for all that a line started in some milliseconds.

To look at each of them would cost more than some of them take. After the first thousand of a thread only so many are
looked at as cost a fiftieth of its time, at random, and each stands for those before it; the others are counted.
"""

import threading
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import Kind

__all__ = ["TINY_NS", "TOGETHER_NS", "Counting", "Counts", "Turns"]

TOGETHER_NS = 5_000_000  # what runs in so long is written down as one event a line
LATEST_NS = 2_000_000_000  # it is, wherever the loop is by then
TINY_NS = 20_000  # an operation that is over by then has done little but start
TINY_LOOKS = 6  # as has one that takes no longer than so many looks, where a look takes long
LONGEST_CALLING_NS = 1_000_000  # Python that takes longer between two operations does something else than call them
EXACTLY = 1000  # operations of a thread that are all looked at
LOOKING_SHARE = 50  # looking takes this part of a thread's time
LOOK_NS = (
    3_000,
    20_000,
)  # what a look takes at least, and is believed to at most: another process may have had its turn
LONGEST_STRIDE = 64  # operations from one that is looked at to the next
MOST_SPANS = 3000  # of some milliseconds: a loop that nothing marks would be counted to its end
UNSEEN = 1 << 30  # operations: until nobody counts them any more
_strides = Random(0)


class Counts:
    """What a thread has run since it was last written down."""

    __slots__ = (
        "exactly",
        "inside",
        "last",
        "left",
        "lines",
        "look_ns",
        "looked",
        "since",
        "spans",
        "stride",
        "turns",
        "written",
    )

    def __init__(self) -> None:
        self.since = self.last = self.looked = perf_counter_ns()
        self.lines: dict[int, list[int]] = {}  # count, tiny ones, nanoseconds inside and of calling, end of the last
        self.exactly = EXACTLY
        self.look_ns = LOOK_NS[0]  # what a look takes, of late
        self.left = 0  # operations before the one that is looked at; of the last of them, only when it ends
        self.stride = 1  # how many that one stands for
        self.inside = False  # an operation; what that calls in turn is not counted
        self.written = self.spans = 0  # operations, and spans of them
        self.turns = Turns()

    @property
    def per_span(self) -> int:
        """Operations of a mean one."""
        return max(1, self.written // max(1, self.spans))

    def pass_over(self, end: int) -> None:
        """One more that is not looked at."""
        self.left -= 1
        self.last = end

    def belong(self, line: int, start: int, end: int, dispatching: int = 0) -> None:
        """One was looked at; of its own time, some nanoseconds may go on calling it too."""
        stride, spent, calling = self.stride, end - start, start - self.last
        calling = calling if calling < LONGEST_CALLING_NS else 0
        counts = self.lines.get(line)
        if counts is None:
            counts = self.lines[line] = [0, 0, 0, 0, 0]
        counts[0] += stride
        # On a slow machine all of it takes longer, and so does a look.
        longest = max(2 * TINY_NS, TINY_LOOKS * self.look_ns)
        counts[1] += stride * (spent < max(TINY_NS, calling, min(2 * calling, longest)))
        counts[2] += stride * (spent - dispatching)
        counts[3] += stride * (calling + dispatching)
        counts[4] = end

    def go_on(self, end: int) -> None:
        """Choose which operation is looked at next; at random, or in a loop it would always be the same line."""
        pace = max(1, (end - self.looked) // self.stride)
        took = min(max(perf_counter_ns() - end, LOOK_NS[0]), LOOK_NS[1])
        self.look_ns += (took - self.look_ns) >> 3
        self.last = self.looked = end
        self.exactly -= self.stride
        often = 1 if self.exactly > 0 else min(LONGEST_STRIDE, LOOKING_SHARE * self.look_ns // pace)
        self.stride = 1 if often <= 1 else 1 + int(_strides.random() * (2 * often - 1))
        self.left = self.stride - 1


class _Thread(threading.local):
    """Asked for one thing only: what is a thread's own is found slowly."""

    def __init__(self) -> None:
        self.counts = Counts()


class Counting:
    """Counts the operations of one framework."""

    def __init__(self, ledger: Ledger, api: str) -> None:
        self.ledger, self.api = ledger, api
        self.thread = _Thread()
        self.on = True
        self._spans = 0

    def look(self, counts: Counts, start: int, end: int, dispatching: int = 0) -> int:
        """An operation is looked at: which line has started it, -1 where none of the user's did."""
        if self.ledger.timed is not None:
            self._mark(counts, end, self.ledger.timed[2])
            return -1
        line = self.ledger.lines.here(2)
        if line >= 0:
            if counts.exactly > 0:
                counts.turns.met(line)
            if self._is_over(counts, line, start):
                self.write()
            counts.belong(line, start, end, dispatching)
        counts.go_on(end)
        return line

    def pause(self, counts: Counts) -> None:
        """Nothing is watched at the moment, or never again: to ask at every operation would be a waste."""
        if not self.on or not self.ledger.on:
            counts.left = UNSEEN
        elif self.ledger.resting_until:
            counts.left = LONGEST_STRIDE

    def write(self) -> None:
        """Write down what was counted on this thread."""
        counts = self.thread.counts
        lines, counts.lines, counts.since = counts.lines, {}, perf_counter_ns()
        counts.written += sum(count for count, *_ in lines.values())
        counts.spans += 1
        for line, (count, tiny, spent, calling, end) in lines.items():
            detail = {"count": count, "tiny": tiny, "calling_seconds": calling / 1e9}
            self.ledger.write(Kind.OPS, self.api, line, end - spent, end, 0, detail)
        self._spans += 1
        if self._spans == MOST_SPANS:
            self.on = False
            self.ledger.note(f"{self.api} were counted until there were enough, and not to the end.")

    def stop(self) -> None:
        self.write()
        self.on = False

    def _is_over(self, counts: Counts, line: int, now: int) -> bool:
        """Whether a span ends before this operation: at the line where the loop's turns begin, where that is known."""
        lasted = now - counts.since
        if lasted <= TOGETHER_NS:
            return False
        if lasted > LATEST_NS:
            counts.exactly, counts.turns = EXACTLY, Turns()  # it is another loop by now
            return True
        return counts.exactly > 0 or counts.turns.begins_at(line)

    def _mark(self, counts: Counts, end: int, line: int) -> None:
        """Steps are timed: as many operations as a span has had are one, and nobody looks at any of them."""
        count = counts.per_span
        counts.left = count - 1
        self.ledger.write(Kind.OPS, self.api, line, end, end, 0, {"count": count})


FEWEST = 3  # turns, or it is no loop


class Turns:
    """Told of the lines of operations, one after the other; then asked which of them begins a turn."""

    def __init__(self) -> None:
        self._passes: dict[int, int] = {}  # how often each was come to from another line
        self._previous = -1
        self._begins: int | None = None

    def met(self, line: int) -> None:
        if line != self._previous:
            self._passes[line] = self._passes.get(line, 0) + 1
            self._previous = line

    def begins_at(self, line: int) -> bool:
        """Any line does where none is known to."""
        if self._begins is None:
            self._begins = self._seldom()
        return self._begins in (-1, line)

    def _seldom(self) -> int:
        """The first of those that come least often: the lines of an inner loop come more often than its turns."""
        again = {line: passes for line, passes in self._passes.items() if passes >= FEWEST}
        return min(again, key=lambda line: again[line], default=-1)
