"""Counts operations that run one by one: one event for all operations of a line within a few milliseconds.

Examining every operation would take longer than some operations do. After the first thousand operations of a thread,
the counter samples at random, so that sampling takes a fiftieth of the thread's time. Each sample stands for the
operations since the previous sample.
"""

import threading
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["SPAN_NS", "TINY_NS", "LoopDetector", "OpCounter", "ThreadOps"]

SPAN_NS = 5_000_000  # operations of a span this long become one event for each line
MAX_SPAN_NS = 2_000_000_000  # a span ends after this time, wherever the loop is
TINY_NS = 20_000  # a shorter operation does little more than start
TINY_SAMPLE_COSTS = 6  # on a slow machine, an operation is tiny up to this many times the cost of a sample
MAX_CALLING_NS = 1_000_000  # longer Python time between two operations is not spent on calling them
EXACT_OPS = 1000  # the first operations of a thread are all sampled
SAMPLING_SHARE = 50  # sampling takes one part in this many of a thread's time
# Bounds for the measured cost of a sample; it looks larger if another process took the core meanwhile.
SAMPLE_COST_NS = (3_000, 20_000)
MAX_STRIDE = 64  # operations from one sample to the next
MAX_SPANS = 3000  # a loop without step marks would otherwise be counted to its end
NEVER_SAMPLE = 1 << 30  # operations until the next sample, once counting is over
_stride_random = Random(0)


class ThreadOps:
    """The operations of one thread since its last event."""

    __slots__ = (
        "by_line",
        "exact_left",
        "in_op",
        "last_end",
        "loop",
        "op_count",
        "sample_cost_ns",
        "sampled_at",
        "span_count",
        "span_start",
        "stride",
        "until_sample",
    )

    def __init__(self) -> None:
        self.span_start = self.last_end = self.sampled_at = perf_counter_ns()
        # For each line: number, tiny ones, nanoseconds inside, nanoseconds of calling, end of the last one.
        self.by_line: dict[int, list[int]] = {}
        self.exact_left = EXACT_OPS
        self.sample_cost_ns = SAMPLE_COST_NS[0]  # running mean
        self.until_sample = 0  # operations before the next sample; of the last of them, only the end is recorded
        self.stride = 1  # operations that the next sample stands for
        self.in_op = False  # inside an operation; operations that it calls are not counted
        self.op_count = self.span_count = 0
        self.loop = LoopDetector()

    @property
    def ops_per_span(self) -> int:
        """The mean number of operations in a span."""
        return max(1, self.op_count // max(1, self.span_count))

    def skip_op(self, end: int) -> None:
        """Count an operation that is not sampled."""
        self.until_sample -= 1
        self.last_end = end

    def add_sample(self, line: int, start: int, end: int, dispatch_ns: int = 0) -> None:
        """Add a sampled operation. `dispatch_ns` of its time count as calling it."""
        stride, spent_ns, calling_ns = self.stride, end - start, start - self.last_end
        calling_ns = calling_ns if calling_ns < MAX_CALLING_NS else 0
        counts = self.by_line.get(line)
        if counts is None:
            counts = self.by_line[line] = [0, 0, 0, 0, 0]
        counts[0] += stride
        # On a slow machine every operation takes longer, and so does a sample.
        max_tiny_ns = max(2 * TINY_NS, TINY_SAMPLE_COSTS * self.sample_cost_ns)
        counts[1] += stride * (spent_ns < max(TINY_NS, calling_ns, min(2 * calling_ns, max_tiny_ns)))
        counts[2] += stride * (spent_ns - dispatch_ns)
        counts[3] += stride * (calling_ns + dispatch_ns)
        counts[4] = end

    def choose_next_sample(self, end: int) -> None:
        """Choose the next operation to sample, at random: a fixed stride would always hit the same line of a loop."""
        interval_ns = max(1, (end - self.sampled_at) // self.stride)
        cost_ns = min(max(perf_counter_ns() - end, SAMPLE_COST_NS[0]), SAMPLE_COST_NS[1])
        self.sample_cost_ns += (cost_ns - self.sample_cost_ns) >> 3
        self.last_end = self.sampled_at = end
        self.exact_left -= self.stride
        mean_stride = 1 if self.exact_left > 0 else min(MAX_STRIDE, SAMPLING_SHARE * self.sample_cost_ns // interval_ns)
        self.stride = 1 if mean_stride <= 1 else 1 + int(_stride_random.random() * (2 * mean_stride - 1))
        self.until_sample = self.stride - 1


class _ThreadLocalOps(threading.local):
    """Holds a single attribute, because thread-local lookups are slow."""

    def __init__(self) -> None:
        self.ops = ThreadOps()


class OpCounter:
    """Counts the operations of one framework."""

    def __init__(self, ledger: Ledger, api: str) -> None:
        self.ledger, self.api = ledger, api
        self.thread = _ThreadLocalOps()
        self.is_on = True
        self._span_count = 0

    def sample(self, ops: ThreadOps, start: int, end: int, dispatch_ns: int = 0) -> int:
        """Sample an operation; return the index of the user line that started it, or -1."""
        if self.ledger.timed_site is not None:
            self._record_timed_span(ops, end, self.ledger.timed_site[2])
            return -1
        line = self.ledger.lines.current_line(2)
        if line >= 0:
            if ops.exact_left > 0:
                ops.loop.on_line(line)
            if self._ends_span(ops, line, start):
                self.write()
            ops.add_sample(line, start, end, dispatch_ns)
        ops.choose_next_sample(end)
        return line

    def pause(self, ops: ThreadOps) -> None:
        """Postpone the next sample while the ledger is paused or off, so that no operation has to ask."""
        if not self.is_on or not self.ledger.is_on:
            ops.until_sample = NEVER_SAMPLE
        elif self.ledger.paused_until:
            ops.until_sample = MAX_STRIDE

    def write(self) -> None:
        """Write the events of this thread's span."""
        ops = self.thread.ops
        by_line, ops.by_line, ops.span_start = ops.by_line, {}, perf_counter_ns()
        ops.op_count += sum(count for count, *_ in by_line.values())
        ops.span_count += 1
        for line, (count, tiny, spent_ns, calling_ns, end) in by_line.items():
            detail = {"count": count, "tiny": tiny, "calling_seconds": calling_ns / 1e9}
            self.ledger.write(EventKind.OPS, self.api, line, end - spent_ns, end, detail=detail)
        self._span_count += 1
        if self._span_count == MAX_SPANS:
            self.is_on = False
            self.ledger.note(f"{self.api} were counted only in the first {MAX_SPANS} spans.")

    def stop(self) -> None:
        self.write()
        self.is_on = False

    def _ends_span(self, ops: ThreadOps, line: int, now: int) -> bool:
        """Whether a span ends before this operation: at the first line of the loop, if that is known."""
        lasted = now - ops.span_start
        if lasted <= SPAN_NS:
            return False
        if lasted > MAX_SPAN_NS:
            ops.exact_left, ops.loop = EXACT_OPS, LoopDetector()  # the script is in another loop by now
            return True
        return ops.exact_left > 0 or ops.loop.starts_at(line)

    def _record_timed_span(self, ops: ThreadOps, end: int, line: int) -> None:
        """While steps are timed, write one event for as many operations as a mean span has, without samples."""
        count = ops.ops_per_span
        ops.until_sample = count - 1
        self.ledger.write(EventKind.OPS, self.api, line, end, end, detail={"count": count})


MIN_ITERATIONS = 3  # of a loop


class LoopDetector:
    """Finds the line at which an iteration of a loop starts, from the sequence of lines of its operations."""

    def __init__(self) -> None:
        self._arrivals: dict[int, int] = {}  # how often each line followed another line
        self._previous = -1
        self._first_line: int | None = None

    def on_line(self, line: int) -> None:
        if line != self._previous:
            self._arrivals[line] = self._arrivals.get(line, 0) + 1
            self._previous = line

    def starts_at(self, line: int) -> bool:
        """Whether an iteration starts at this line; True for every line if no first line is known."""
        if self._first_line is None:
            self._first_line = self._rarest_line()
        return self._first_line in (-1, line)

    def _rarest_line(self) -> int:
        """Return the earliest of the lines that recur least often; lines of an inner loop recur more often."""
        recurring = {line: arrivals for line, arrivals in self._arrivals.items() if arrivals >= MIN_ITERATIONS}
        return min(recurring, key=lambda line: recurring[line], default=-1)
