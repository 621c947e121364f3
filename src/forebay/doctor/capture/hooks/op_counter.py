"""Counts eager operations, which run one by one, outside of compiled code.

The counter collects the operations of a thread in spans of at least 5 ms. A span becomes one event for each user line.

Examining an operation can take longer than the operation. After the first thousand operations of a thread, the counter
therefore samples at random, so that sampling takes a fiftieth of the thread's time. Each sample stands for all
operations since the previous sample.

The time of an operation has two parts: the call itself, and the calling time, which is the time since the previous
operation ended. Python needs the calling time to reach the next call.
"""

import threading
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["SPAN_NS", "TINY_NS", "LoopDetector", "OpCounter", "ThreadOps"]

SPAN_NS = 5_000_000  # shortest span
MAX_SPAN_NS = 2_000_000_000  # longest span; it may end in the middle of an iteration
TINY_NS = 20_000  # a shorter operation does little more than start
TINY_SAMPLE_COSTS = 6  # limit of a tiny operation on a slow machine, as a multiple of the cost of a sample
MAX_CALLING_NS = 1_000_000  # the script did other work in a longer gap, so the gap is not calling time
EXACT_OPS = 1000  # the counter samples all of the first operations of a thread
SAMPLING_DIVISOR = 50  # sampling takes 1/50 of a thread's time
SAMPLE_COST_BOUNDS_NS = (3_000, 20_000)  # a higher measured cost includes time of other processes on the core
MAX_STRIDE = 64  # largest mean number of operations from one sample to the next
MAX_SPANS = 3000  # counting ends after this many spans; a loop without step marks would be counted to its end
NEVER_SAMPLE = 1 << 30  # operations until the next sample, after counting has ended
_stride_random = Random(0)


class ThreadOps:
    """The operations of one thread in the current span, and when to sample next.

    Times are nanoseconds.
    """

    __slots__ = (
        "by_line",
        "exact_ops_left",
        "is_in_op",
        "last_end",
        "last_sample_end",
        "loop",
        "op_count",
        "ops_until_sample",
        "sample_cost_ns",
        "span_count",
        "span_start",
        "stride",
    )

    def __init__(self) -> None:
        self.span_start = self.last_end = self.last_sample_end = perf_counter_ns()
        # Line -> [operations, tiny operations, time inside operations, calling time, end of the last operation].
        self.by_line: dict[int, list[int]] = {}
        self.exact_ops_left = EXACT_OPS
        self.sample_cost_ns = SAMPLE_COST_BOUNDS_NS[0]  # running mean
        self.ops_until_sample = 0  # operations before the next sample; the last of them needs a call of `skip_op`
        self.stride = 1  # operations that the next sample stands for
        self.is_in_op = False  # an operation is running; operations that it calls are not counted
        self.op_count = self.span_count = 0  # in all spans that have ended
        self.loop = LoopDetector()

    @property
    def ops_per_span(self) -> int:
        """The mean number of operations in a span."""
        return max(1, self.op_count // max(1, self.span_count))

    def skip_op(self, end: int) -> None:
        """Count an operation that is not sampled.

        The calling time of a sample starts at the end stored here.
        """
        self.ops_until_sample -= 1
        self.last_end = end

    def add_sample(self, line: int, start: int, end: int, dispatch_ns: int = 0) -> None:
        """Add a sampled operation.

        `dispatch_ns` is the part of the call that counts as calling time.
        """
        stride, spent_ns, calling_ns = self.stride, end - start, start - self.last_end
        calling_ns = calling_ns if calling_ns < MAX_CALLING_NS else 0
        counts = self.by_line.get(line)
        if counts is None:
            counts = self.by_line[line] = [0, 0, 0, 0, 0]
        counts[0] += stride
        # An operation is tiny if it takes less than 20 us, less than its calling time, or less than twice its calling
        # time and a limit. The limit grows with the cost of a sample, because both are longer on a slow machine.
        max_tiny_ns = max(2 * TINY_NS, TINY_SAMPLE_COSTS * self.sample_cost_ns)
        counts[1] += stride * (spent_ns < max(TINY_NS, calling_ns, min(2 * calling_ns, max_tiny_ns)))
        counts[2] += stride * (spent_ns - dispatch_ns)
        counts[3] += stride * (calling_ns + dispatch_ns)
        counts[4] = end

    def choose_next_sample(self, end: int) -> None:
        """Choose the next operation to sample at random.

        A fixed stride could hit the same line in every iteration.
        """
        interval_ns = max(1, (end - self.last_sample_end) // self.stride)
        cost_ns = min(max(perf_counter_ns() - end, SAMPLE_COST_BOUNDS_NS[0]), SAMPLE_COST_BOUNDS_NS[1])
        self.sample_cost_ns += (cost_ns - self.sample_cost_ns) >> 3
        self.last_end = self.last_sample_end = end
        self.exact_ops_left -= self.stride
        mean_stride = (
            1 if self.exact_ops_left > 0 else min(MAX_STRIDE, SAMPLING_DIVISOR * self.sample_cost_ns // interval_ns)
        )
        self.stride = 1 if mean_stride <= 1 else 1 + int(_stride_random.random() * (2 * mean_stride - 1))
        self.ops_until_sample = self.stride - 1


class _ThreadLocalOps(threading.local):
    """Has a single attribute, because each lookup of a thread-local attribute is slow."""

    def __init__(self) -> None:
        self.ops = ThreadOps()


class OpCounter:
    """Counts the operations of one framework and writes their events."""

    def __init__(self, ledger: Ledger, api: str) -> None:
        self.ledger, self.api = ledger, api
        self.thread = _ThreadLocalOps()
        self.is_on = True
        self._span_count = 0

    def sample(self, ops: ThreadOps, start: int, end: int, dispatch_ns: int = 0) -> int:
        """Sample an operation. Return the index of the user line that started it, or -1."""
        if self.ledger.timed_site is not None:
            self._record_timed_span(ops, end, self.ledger.timed_site[2])
            return -1
        line = self.ledger.lines.current_line(2)
        if line >= 0:
            if ops.exact_ops_left > 0:
                ops.loop.add_line(line)
            if self._ends_span(ops, line, start):
                self.write_span()
            ops.add_sample(line, start, end, dispatch_ns)
        ops.choose_next_sample(end)
        return line

    def postpone_sample(self, ops: ThreadOps) -> None:
        """Postpone the next sample if counting has ended or the ledger is off or paused."""
        if not self.is_on or not self.ledger.is_on:
            ops.ops_until_sample = NEVER_SAMPLE
        elif self.ledger.paused_until:
            ops.ops_until_sample = MAX_STRIDE

    def write_span(self) -> None:
        """Write one event for each line in this thread's span, and start a new span."""
        ops = self.thread.ops
        by_line, ops.by_line, ops.span_start = ops.by_line, {}, perf_counter_ns()
        ops.op_count += sum(count for count, *_ in by_line.values())
        ops.span_count += 1
        for line, (count, tiny, spent_ns, calling_ns, end) in by_line.items():
            detail = {"count": count, "tiny": tiny, "calling_seconds": calling_ns / 1e9}
            start = end - spent_ns  # the event lasts as long as its operations together
            self.ledger.write((EventKind.OPS, self.api, line), start, end, detail=detail)
        self._span_count += 1
        if self._span_count == MAX_SPANS:
            self.is_on = False
            self.ledger.note(f"{self.api} were counted only in the first {MAX_SPANS} spans of 5 ms or more.")

    def stop(self) -> None:
        """Write the last span and end counting."""
        self.write_span()
        self.is_on = False

    def _ends_span(self, ops: ThreadOps, line: int, now: int) -> bool:
        """Whether the span ends before this operation. Most spans end where an iteration starts."""
        elapsed_ns = now - ops.span_start
        if elapsed_ns <= SPAN_NS:
            return False
        if elapsed_ns > MAX_SPAN_NS:
            ops.exact_ops_left, ops.loop = EXACT_OPS, LoopDetector()  # the script is in another loop by now
            return True
        return ops.exact_ops_left > 0 or ops.loop.starts_at(line)

    def _record_timed_span(self, ops: ThreadOps, end: int, line: int) -> None:
        """Write the event of a span while steps are timed.

        The span has as many operations as an earlier span had on average. The operations are not sampled.
        """
        count = ops.ops_per_span
        ops.ops_until_sample = count - 1
        self.ledger.write((EventKind.OPS, self.api, line), end, end, detail={"count": count})


MIN_ITERATIONS = 3  # a line that occurs less often is not in a loop


class LoopDetector:
    """Finds the line at which iterations of a loop start, from the lines of operations."""

    def __init__(self) -> None:
        self._arrival_counts: dict[int, int] = {}  # line -> how often it followed a different line
        self._previous = -1
        self._first_line: int | None = None  # None: not searched yet; -1: no line recurs

    def add_line(self, line: int) -> None:
        if line != self._previous:
            self._arrival_counts[line] = self._arrival_counts.get(line, 0) + 1
            self._previous = line

    def starts_at(self, line: int) -> bool:
        """Whether an iteration starts at this line; True for every line if no line recurs."""
        if self._first_line is None:
            self._first_line = self._find_first_line()
        return self._first_line in (-1, line)

    def _find_first_line(self) -> int:
        """Return the earliest of the lines that recur least often.

        Lines of an inner loop recur more often.
        """
        recurring = {line: count for line, count in self._arrival_counts.items() if count >= MIN_ITERATIONS}
        return min(recurring, key=lambda line: recurring[line], default=-1)
