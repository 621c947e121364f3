"""The limits of a step on the CPU if threads or processes make its batches.

The limits are the GIL, the cores, and the transfer of batches. Only one thread at a time runs Python code, because this
needs the GIL. So the times of Python code that makes batches and of Python code in the step add up. Code in C, and
waits for files and devices, can overlap with the step.

The costs of feeds and of starting workers were measured on two cores of a Xeon at 2.5 GHz with PyTorch 2.13
(2026-11-18): the CPU time per batch of a loop with a feed or workers, minus that of a loop over ready batches.
"""

from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import is_python_data
from forebay.doctor.analyse.host_lines import samples_inside
from forebay.doctor.analyse.phases import BACKWARD, parts_of_step
from forebay.doctor.model.events import PYTHON_CODE, EventKind
from forebay.doctor.predict import call_changes, changes
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.outcomes import WORKERS_BYTES_PER_SECOND, Changes, line_of
from forebay.doctor.predict.timeline import steady_step_seconds

__all__ = [
    "ARRAY_FEED_SECONDS",
    "CHEAP_ROW_SECONDS",
    "FEED_LOOP_SECONDS",
    "FULL_SHARE",
    "SOURCE_ROW_SECONDS",
    "contention_seconds",
    "makes_cheap_rows",
    "prefetch_in_processes",
    "prefetch_in_thread",
    "shortens_step",
]

# To take a batch from a feed, at best and at worst. For batches of 32 to 256 rows of 80 bytes, and of 64 rows of 4 kB,
# this took the loop's thread 40 to 55 us, and all threads together 142 to 216 us.
FEED_LOOP_SECONDS = 4e-5, 1e-4
FEED_CPU_SECONDS = 1.4e-4, 2.2e-4
# To take a batch from a feed of arrays. This took the loop's thread 7 to 18 us for 32 to 256 rows of 80 bytes, and
# 49 us for 64 rows of 4 kB.
ARRAY_FEED_SECONDS = 5e-5
# Seconds per row that `from_source` takes longer than a DataLoader to read a dataset of tensors: 14 to 16 us.
SOURCE_ROW_SECONDS = 1.5e-5
# A row that takes less time is mostly Python code and very short C calls. Each of these calls releases the GIL and has
# to get it back from another thread, so a step does not become shorter if another thread makes such rows. A DataLoader
# of rows of 6 us took 47 to 117 % more CPU time if a thread of a feed read it, even without any work in the loop.
CHEAP_ROW_SECONDS = 1e-4
# Seconds of the loop to receive a batch from a worker process, at best and at worst. Batches of any size up to 1.5 MB
# took 0.9 to 1.2 ms of CPU time (PyTorch 2.11). The worker process is assumed to need as much time to send the batch.
HAND_OVER_SECONDS = 1e-4, 1e-3
HAND_OVER_PROCESSES = 2
# To start one or two worker processes and to get the first batch, once per run, at best and at worst. This took 42 to
# 77 ms of CPU time, and 184 to 226 ms on busy cores.
START_SECONDS = 0.04, 0.23
# Factor on the cores that other programs use, from now to the time after the cure, at best and at worst. On a machine
# with two cores, this use changed by a factor of up to 3 within minutes (2026-11-19).
FOREIGN_FACTORS = 0.5, 1.0
# Factor on the CPU time of the same work if all cores are busy, at best and at worst: the cores share caches and
# memory. Measured on two cores with a DataLoader of JPEG files and a small network (2026-11-19): 98 to 134 ms per step
# in one process; with worker processes, 105 to 140 ms in most runs and 163 ms in one run.
BUSY_CORE_FACTORS = 1.0, 1.2
MIN_GAIN_SHARE = 0.03  # of the step; a cure whose best outcome saves less does not pay
ROUNDING_SHARE = 1e-3  # of the step; rounding errors of the simulation are smaller
FULL_SHARE = 0.75  # of the cores; if fewer are busy, the loop and the thread that makes batches have a core each
MOSTLY_RUNNABLE_SHARE = 0.5  # of the time that makes rows; with less, waits take most of it
UNKNOWN_SHARE = 0.5  # nothing shows whether C code holds the GIL; at worst, it does for this share of its time


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The time that the best or the worst outcome adds to a step."""

    is_worst: bool
    added_seconds: float  # seconds per step of the loop's thread
    added_cpu_seconds: float  # CPU seconds per step of all threads and processes


def prefetch_in_thread(view: CaptureView, site: CallSite, wait: float, *, row_seconds: float = 0.0) -> Changes:
    """Let another thread of the process make or convert the batches of a site.

    This now takes the loop `wait` seconds per step. `row_seconds` is the additional time that the thread needs for each
    row.
    """
    batches, rows = site.per_step or 1.0, _rows_per_step(site)
    python = _python_seconds(view, site, wait)
    longest = wait + rows * row_seconds
    least = [seconds + rows * row_seconds for seconds in python]
    step = _step_python_seconds(view, wait)
    outcomes = []
    for is_worst, loop, cpu in zip((False, True), FEED_LOOP_SECONDS, FEED_CPU_SECONDS, strict=True):
        outcome = _Outcome(is_worst, loop * batches, cpu * batches + rows * row_seconds)
        serial = least[is_worst] + step[is_worst] + outcome.added_seconds
        outcomes.append(
            changes.chain(
                (
                    _remove_from_loop(site, longest),
                    changes.add_work(outcome.added_seconds),
                    call_changes.take_at_least(max(serial, _cpu_limit(view, outcome))),
                )
            )
        )
    return tuple(outcomes)


def prefetch_in_processes(view: CaptureView, site: CallSite, batch_seconds: float) -> Changes:
    """Let worker processes make or convert the batches of a site.

    Together, the workers need `batch_seconds` per step. If the step uses several threads, the workers take cores from
    it. At worst, they cannot use the cores that other programs use now.
    """
    batches, copy_seconds = site.per_step or 1.0, site.nbytes / WORKERS_BYTES_PER_SECOND
    steps, outcomes = _steps_of_run(view, site), []
    for is_worst, hand_over, start in zip((False, True), HAND_OVER_SECONDS, START_SECONDS, strict=True):
        added = hand_over * batches + (start / steps if steps else 0.0)
        outcome = _Outcome(is_worst, added, HAND_OVER_PROCESSES * (added + copy_seconds))
        outcomes.append(
            changes.chain(
                (
                    _remove_from_loop(site, max(batch_seconds, copy_seconds)),
                    changes.add_work(added),
                    call_changes.take_at_least(_cpu_limit(view, outcome)),
                )
            )
        )
    return tuple(outcomes)


def contention_seconds(view: CaptureView, site: CallSite, making: float) -> tuple[float, float]:
    """Return the seconds per step that the loop loses to a thread that makes batches.

    The result is a pair: the most that Python code of the loop loses, and the most that its compiled calls lose. The
    thread makes batches for `making` seconds per step. In this time, Python code of the loop may wait for the GIL, and
    all code of the loop for a core. The operating system divides the cores among all threads; without this thread, the
    remaining threads would get its share. If a core was free, the thread takes no core from the loop.
    """
    overlapped = max(0.0, making - cost_of(view, site.events))
    compiled = view.host_parts.get("compiled calls", 0.0)
    waits = view.host_parts.get("waiting for input", 0.0)
    python = min(overlapped, max(0.0, view.step_seconds - waits - compiled))
    busy, foreign = (view.capture.facts.get(name) for name in ("busy_cores", "foreign_cores"))
    if not isinstance(busy, int | float) or not view.step_seconds:
        return python, min(overlapped - python, compiled)
    used = busy + (foreign if isinstance(foreign, int | float) else 0.0)
    if used < FULL_SHARE * float(view.capture.machine.get("cores") or 1):
        return python, 0.0
    others = view.capture.facts.get("other_cores")
    own = min(overlapped / view.step_seconds, busy, others if isinstance(others, int | float) else busy)
    return python, min(overlapped - python, compiled * min(1.0, own / used))


def _remove_from_loop(site: CallSite, producer_seconds: float) -> Change:
    """Return a change: producers do the work of a site, in `producer_seconds` per step."""
    if site.kind is EventKind.INPUT:
        return changes.prefetch_input(producer_seconds=producer_seconds)
    return call_changes.hide_calls(line_of(site), (site.kind.value,), producer_seconds=producer_seconds)


def shortens_step(view: CaptureView, outcomes: Changes) -> bool:
    """Whether a cure does not lengthen the step at worst, and shortens it at best.

    The first outcome is the best, and the last one is the worst. The best one must save at least MIN_GAIN_SHARE.
    """
    timeline = build_timeline(view)
    if timeline is None or not outcomes:
        return False
    now = steady_step_seconds(timeline)
    best, worst = (steady_step_seconds(outcome(timeline)) for outcome in (outcomes[0], outcomes[-1]))
    return worst <= now * (1 + ROUNDING_SHARE) and best <= now * (1 - MIN_GAIN_SHARE)


def makes_cheap_rows(view: CaptureView, site: CallSite, wait: float) -> bool:
    """Whether the loop makes its rows in less than CHEAP_ROW_SECONDS each, mostly without waits."""
    rows = _rows_per_step(site)
    return bool(rows) and wait / rows < CHEAP_ROW_SECONDS and _runnable_share(site) >= MOSTLY_RUNNABLE_SHARE


def _rows_per_step(site: CallSite) -> float:
    """Return the mean number of rows that a step reads; 0.0 if unknown."""
    rows = [rows for rows in site.values("batch_rows") if isinstance(rows, int)]
    return sum(rows) / site.steps if rows else 0.0


def _steps_of_run(view: CaptureView, site: CallSite) -> float:
    """Return the known number of steps: those of the history, but at least one epoch."""
    history, rows = view.capture.history, _rows_per_step(site)
    of_dataset = max((detail.get("dataset_rows") or 0 for detail in view.loader_details(site)), default=0)
    recorded = history.steps if history is not None else 0
    return max(recorded, of_dataset / rows if rows else 0.0)


def _runnable_share(site: CallSite) -> float:
    """Return the share of the wait in which the thread was running or runnable.

    A runnable thread waits only for a core. If some events lack this reading, return 1.0.
    """
    seconds = sum(event.seconds for event in site.events)
    readings = site.values("runnable")
    if not readings or len(readings) < len(site.events) or not seconds:
        return 1.0
    return min(1.0, sum(map(float, readings)) / seconds)


def _python_seconds(view: CaptureView, site: CallSite, wait: float) -> tuple[float, float]:
    """Return for how many seconds per step the making of batches holds the GIL.

    The result has the seconds at best and at worst. Samples show the time in which lines execute bytecode, which needs
    the GIL. Nothing shows whether code in C holds it (see UNKNOWN_SHARE).
    """
    runnable = wait * _runnable_share(site)
    if is_python_data(site) or makes_cheap_rows(view, site, wait):
        return runnable, runnable
    samples = samples_inside(view, site.events)
    total = sum(sample.nanoseconds for sample in samples)
    bytecode = sum(sample.nanoseconds for sample in samples if sample.function == PYTHON_CODE)
    share = bytecode / total if total else 0.0
    return runnable * share, runnable * (share + (1 - share) * UNKNOWN_SHARE)


def _step_python_seconds(view: CaptureView, wait: float) -> tuple[float, float]:
    """Return the seconds per step, without the wait for input, that need the GIL.

    The result has the seconds at best and at worst. At best, compiled calls and the backward pass do not need the GIL.
    At worst, all code needs it: the loop's thread releases the GIL only for short times, and gets it back only when the
    thread that makes batches releases it.
    """
    rest = max(0.0, view.step_seconds - wait)
    parts = parts_of_step(view)
    total = sum(parts.values())
    computing = parts.get("compiled calls", 0.0) + parts.get(BACKWARD, 0.0)
    return max(0.0, rest - view.step_seconds * computing / total) if total else rest, rest


def _cpu_limit(view: CaptureView, outcome: _Outcome) -> float:
    """Return the least seconds of a step if the cores share all its CPU time.

    At best, other programs use fewer cores than now, and the operating system divides the cores equally among all busy
    threads. At worst, it divides them among containers or sessions, so one more thread or process of the script gives
    it no more cores than now, unless cores are free. If the CPU time was not measured, the result is 0.0 at best, and
    the present step time at worst.
    """
    busy, cores = view.capture.facts.get("busy_cores"), float(view.capture.machine.get("cores") or 1)
    if not isinstance(busy, int | float) or not busy:
        return view.step_seconds if outcome.is_worst else 0.0
    measured = view.capture.facts.get("foreign_cores")
    foreign = FOREIGN_FACTORS[outcome.is_worst] * (measured if isinstance(measured, int | float) else 0.0)
    fair = 0.0 if outcome.is_worst else cores * 2 / (2 + foreign / busy)
    free = max(busy, cores - foreign, fair)
    cpu_seconds = BUSY_CORE_FACTORS[outcome.is_worst] * busy * view.step_seconds + outcome.added_cpu_seconds
    return float(cpu_seconds / free)
