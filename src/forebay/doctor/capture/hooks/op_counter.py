"""Counts eager operations, which run one by one, outside of compiled code.

The counter collects the operations of a thread in spans of more than 5 ms. When a span ends, the counter writes one
event for each line of the script that started operations in it.

To sample an operation, the counter finds its line and adds up its times. This can take longer than the operation.
Therefore the counter samples all of the first 300 operations of a thread, and then operations chosen at random, so
that sampling takes about a fiftieth of the thread's time. Each sample stands for all operations since the previous
sample.

The counter adds up two times: the time inside operations, and the calling time. The calling time of an operation is the
gap since the previous operation or recorded call ended, in which Python prepares the call. Operations whose tensors are
small are also added up separately: their time shows how long a call takes almost without computation.
"""

import threading
from random import Random
from time import perf_counter_ns

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.model.events import EventKind

__all__ = ["SPAN_NS", "TINY_NS", "LoopDetector", "OpCounter", "ThreadOps"]

SPAN_NS = 5_000_000  # a span lasts longer than this; shorter spans would write more events
MAX_SPAN_NS = 2_000_000_000  # a span of this length ends at the next sample, even in the middle of an iteration
TINY_NS = 20_000  # a shorter operation does little more than launch its work
TINY_COST_FACTOR = 6  # `max_tiny_ns` in `add_sample` is at least this many times the cost of a sample
MAX_CALLING_NS = 1_000_000  # in a longer gap the script did other work, so the gap does not count as calling time
EXACT_OPS = 300  # the counter samples each of the first 300 operations of a thread, and of a new loop
SAMPLING_DIVISOR = 50  # sampling takes about 1/50 of a thread's time; more if MAX_STRIDE limits the stride
# The measured cost of a sample is limited to this range. A higher value includes time of other processes on the core.
SAMPLE_COST_BOUNDS_NS = (3_000, 20_000)
MAX_STRIDE = 64  # largest mean number of operations from one sample to the next
MAX_SPANS = 3000  # of all threads; then counting ends, which limits the events of a script without steps
NEVER_SAMPLE = 1 << 30  # operations until the next sample, after counting has ended
_stride_random = Random(0)  # a separate generator, because the script owns the state of the global one


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
        # Line -> [operations, tiny operations, time inside operations, calling time, end of the last sample, operations
        # on small tensors, time inside these].
        self.by_line: dict[int, list[int]] = {}
        self.exact_ops_left = EXACT_OPS  # while positive, every operation is sampled
        self.sample_cost_ns = SAMPLE_COST_BOUNDS_NS[0]  # running mean; each new sample has a weight of 1/8
        self.ops_until_sample = 0  # operations before the next sample; pass the last of them to `skip_op`
        self.stride = 1  # operations that the next sample stands for
        self.is_in_op = False  # an operation is running; operations that it calls are not counted
        self.op_count = self.span_count = 0  # without the current span
        self.loop = LoopDetector()

    @property
    def ops_per_span(self) -> int:
        """The mean number of operations in the spans that have ended, or 1."""
        return max(1, self.op_count // max(1, self.span_count))

    def skip_op(self, end: int) -> None:
        """Count an operation that is not sampled, and store its end.

        The calling time of the next operation starts at this end.
        """
        self.ops_until_sample -= 1
        self.last_end = end

    def add_sample(self, line: int, start: int, end: int, dispatch_ns: int = 0, *, is_small: bool = False) -> None:
        """Add a sampled operation, which stands for `stride` operations.

        `dispatch_ns` is the part of the call that counts as calling time.
        """
        stride, spent_ns, calling_ns = self.stride, end - start, start - self.last_end
        calling_ns = calling_ns if calling_ns < MAX_CALLING_NS else 0
        counts = self.by_line.get(line)
        if counts is None:
            counts = self.by_line[line] = [0] * 7
        counts[0] += stride
        # An operation is tiny if it takes less than TINY_NS, or less than its calling time, or less than both twice its
        # calling time and `max_tiny_ns`. On a slow machine, samples and operations take longer, so `max_tiny_ns` grows.
        max_tiny_ns = max(2 * TINY_NS, TINY_COST_FACTOR * self.sample_cost_ns)
        counts[1] += stride * (spent_ns < max(TINY_NS, calling_ns, min(2 * calling_ns, max_tiny_ns)))
        counts[2] += stride * (spent_ns - dispatch_ns)
        counts[3] += stride * (calling_ns + dispatch_ns)
        counts[4] = end
        counts[5] += stride * is_small
        counts[6] += stride * spent_ns * is_small

    def choose_next_sample(self, end: int) -> None:
        """Choose at random which operation is sampled next.

        A fixed stride could hit the same line in every iteration. While `exact_ops_left` is positive, choose the next
        operation.
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
    """The operations of each thread.

    They are one attribute, because each lookup of a thread-local attribute is slow.
    """

    def __init__(self) -> None:
        self.ops = ThreadOps()


class OpCounter:
    """Counts the operations of one framework and writes their events."""

    def __init__(self, ledger: Ledger, api: str) -> None:
        self.ledger, self.api = ledger, api
        self.thread = _ThreadLocalOps()
        self.is_on = True
        self._knows_sizes = False  # whether the hook says which operations have small tensors
        self._span_count = 0

    def sample(
        self, ops: ThreadOps, start: int, end: int, dispatch_ns: int = 0, *, is_small: bool | None = None
    ) -> int:
        """Sample an operation and choose the next sample.

        `is_small` says whether all tensors of the operation are small; None: the hooks of this counter do not know.
        Return the index of the line that started the operation, or -1. While steps are timed, only write the event of a
        span, and return -1. After counting has ended, count nothing and return -1.
        """
        if not self.is_on:
            ops.ops_until_sample = NEVER_SAMPLE
            return -1
        if self.ledger.timed_site is not None:
            self._record_timed_span(ops, end, self.ledger.timed_site[2])
            return -1
        line = self.ledger.lines.current_line(2)
        if line >= 0:
            ops.last_end = max(ops.last_end, min(start, self.ledger.last_end))  # a compiled call is not calling time
            if ops.exact_ops_left > 0:
                ops.loop.add_line(line)
            if self._ends_span(ops, line, start):
                self.write_span()
            self._knows_sizes = is_small is not None
            ops.add_sample(line, start, end, dispatch_ns, is_small=bool(is_small))
        ops.choose_next_sample(end)
        return line

    def postpone_sample(self, ops: ThreadOps) -> None:
        """Postpone the next sample if counting has ended or the ledger is off or paused."""
        if not self.is_on or not self.ledger.is_on:
            ops.ops_until_sample = NEVER_SAMPLE
        elif self.ledger.paused_until:
            ops.ops_until_sample = MAX_STRIDE

    def write_span(self) -> None:
        """Write one event for each line in this thread's span, and start a new span.

        After MAX_SPANS spans, end counting and add a note to the report.
        """
        ops = self.thread.ops
        by_line, ops.by_line, ops.span_start = ops.by_line, {}, perf_counter_ns()
        ops.op_count += sum(count for count, *_ in by_line.values())
        ops.span_count += 1
        for line, (count, tiny, spent_ns, calling_ns, end, small, small_ns) in by_line.items():
            detail = {"count": count, "tiny": tiny, "calling_seconds": calling_ns / 1e9}
            if self._knows_sizes:
                detail |= {"small": small, "small_seconds": small_ns / 1e9}
            start = end - spent_ns  # the event lasts as long as its operations together
            self.ledger.write((EventKind.OPS, self.api, line), start, end, detail=detail)
        self._span_count += 1
        if self._span_count == MAX_SPANS:
            self.is_on = False
            self.ledger.note(f"{self.api} were counted only in the first {MAX_SPANS} time spans of 5 ms or more.")

    def stop(self) -> None:
        """Write the span of this thread and end counting. Spans of other threads are lost."""
        self.write_span()
        self.is_on = False

    def _ends_span(self, ops: ThreadOps, line: int, now: int) -> bool:
        """Whether the span ends before this operation.

        During the first EXACT_OPS operations, a span may end anywhere. Later it ends where an iteration starts. After
        MAX_SPAN_NS it ends anywhere, and the counter searches for the loop again.
        """
        elapsed_ns = now - ops.span_start
        if elapsed_ns <= SPAN_NS:
            return False
        if elapsed_ns > MAX_SPAN_NS:
            ops.exact_ops_left, ops.loop = EXACT_OPS, LoopDetector()  # the script has probably left the loop
            return True
        return ops.exact_ops_left > 0 or ops.loop.starts_at(line)

    def _record_timed_span(self, ops: ThreadOps, end: int, line: int) -> None:
        """Write the event of a span while steps are timed. The event has no duration.

        The count of the event is the mean number of operations in the earlier spans. The next event follows after as
        many operations.
        """
        count = ops.ops_per_span
        ops.ops_until_sample = count - 1
        self.ledger.write((EventKind.OPS, self.api, line), end, end, detail={"count": count})


MIN_ITERATIONS = 3  # a line that occurs less often does not count as part of a loop


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
        """Return the line that recurs least often, or -1 if no line recurs.

        Lines of an inner loop recur more often. Of equally frequent lines, return the one that ran first.
        """
        recurring = {line: count for line, count in self._arrival_counts.items() if count >= MIN_ITERATIONS}
        return min(recurring, key=lambda line: recurring[line], default=-1)
