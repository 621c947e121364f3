"""The outcomes of each kind of cure, as changes of a timeline.

Each function, except `check_seconds`, returns one change of the timeline per outcome, usually the best and the worst;
its docstring describes the cure. With device records, the changes apply to the copies and kernels of each call. Without
them, the changes apply only to the time of the host. A producer is another thread or process that makes batches.
"""

from collections.abc import Callable, Sequence

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict import call_changes, changes, check_changes, input_costs
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.kernel_changes import scale_kernels
from forebay.doctor.predict.machines import MachineSpeeds
from forebay.doctor.predict.outcomes import (
    WORKERS_BYTES_PER_SECOND,
    Changes,
    choose_outcomes,
    limit_by_cores,
    line_of,
)
from forebay.doctor.predict.timeline import DeviceOperation

__all__ = [
    "CPU_CALL_SECONDS",
    "CPU_NUMBER_SECONDS",
    "SMALL_GPU_BATCH_NBYTES",
    "Changes",
    "call_on_batches",
    "check_on_device",
    "check_seconds",
    "compute_on_cpu",
    "remove_waits_of_line",
    "enlarge_batch",
    "feed_from_memory",
    "hide_waits",
    "launch_without_waiting",
    "make_less_in_python",
    "limit_to_cores",
    "map_whole_batches",
    "move_to_device",
    "prefetch_input",
    "remove_calls",
    "remove_work",
    "shorten_input",
    "shorten_run",
    "shrink_kernels",
]

# Seconds of the loop to receive a batch below 1 MiB from a worker process, at best and at worst, in a process that uses
# a GPU. Measured with 8 to 16 workers on the virtual machine of an H200 (2026-11-18), as the step time with the loader
# minus the step time without it: batches of 0.2 MB took 2 and 5 ms, batches of 0.3 MB took 11 ms. A machine without a
# hypervisor should need less time.
GPU_HAND_OVER_SECONDS = 1e-3, 11e-3
SMALL_GPU_BATCH_NBYTES = 1 << 20
# The shortest time to make a batch that a prefetching thread can hide in a process that uses a GPU, in seconds.
# Measured on the virtual machine of an H200 with tf.data and waits of 0.2 ms (2026-11-18): prefetching made steps of
# 0.65 and 0.89 ms longer by 0.1 and 0.3 ms.
MIN_PREFETCHED_SECONDS = 5e-4
FEED_BYTES_PER_SECOND = 5e9  # of a feed of arrays; estimated, below the speed of a copy by one thread
FEED_SECONDS = 2e-4  # of the loop, to take a batch from a feed in a process that uses a GPU; estimated
# Speed of 16 busy processes together on the 16 cores of a virtual machine, as a share of 16 times the speed of a single
# process. Measured (2026-11-18): NumPy 0.97, Python 0.65, a DataLoader of JPEG files 0.52, libjpeg-turbo 0.43. The two
# values, at best and at worst, leave out the extremes.
WORKER_EFFICIENCIES = 0.8, 0.55
CPU_CALL_SECONDS = 1e-6, 5e-6  # time per operation on a fast and on a slow CPU core
CPU_NUMBER_SECONDS = 0.5e-9, 4e-9  # time per array element on a fast and on a slow CPU core
CPU_CALLING_SHARES = 0.4, 0.9  # share of the launch time that a framework still needs for calls on the CPU; estimated
# Passes over all bytes for a check on the device, at best and at worst: one pass for a sum; four passes to subtract,
# take absolute values, compare and add.
CHECK_PASSES = 1, 4
# Share of the wait that remains if a map handles whole batches instead of rows. Measured on two cores with a cast and a
# division of images of 784 bytes, 100 rows per batch (2026-11-17): single rows took 8 to 13 ms per batch, whole batches
# took 1.1 to 1.9 ms.
WHOLE_BATCH_SHARES = 0.1, 0.3
# Time of `train_on_batch` or `predict_on_batch` of a small Keras model. Measured with an H200 (2026-11-18): 1.5 ms.
ON_BATCH_SECONDS = 1e-3, 2.5e-3
FREE_SHARE = 0.1  # of all cores; with fewer free cores, no thread can make batches during the step
FASTEST_LINK = 60e9  # bytes per second; no PCIe link of 16 lanes is faster


def remove_waits_of_line(view: CaptureView, site: CallSite) -> Changes:
    """Wait so rarely that the waits of a site take no time.

    Without device records, the time that the device needs is unknown. At best it is the time of the waits, so a step
    takes at least this time. At worst it is the whole step time, and nothing changes.
    """
    line, wait_seconds = line_of(site), cost_of(view, site.events)
    best_on_host = changes.chain((changes.remove_waits_of_line(line), call_changes.take_at_least(wait_seconds)))
    return choose_outcomes(
        view,
        lambda speeds: (changes.remove_waits_of_line(line),),
        lambda: (best_on_host, call_changes.unchanged),
    )


def check_on_device(view: CaptureView, site: CallSite, *, waits: bool) -> Changes:
    """Check data on the device instead of reading it back.

    With `waits`, the loop waits for the result of the check. At best, this removes all host work after the read-back.
    At worst, it removes only the share of this work that is certainly the check. Without device records, it removes the
    read-back at best, and at worst only the time that its copy takes on the fastest link.
    """
    line, copy_seconds = line_of(site), site.nbytes / FASTEST_LINK

    def change(speeds: MachineSpeeds) -> Changes:
        # Assume that a check reads device memory as fast as a gather of rows.
        return tuple(
            check_changes.check_on_device(
                line, bytes_per_second=speeds.gather, passes=passes, waits=waits, is_cautious=is_cautious
            )
            for passes, is_cautious in zip(CHECK_PASSES, (False, True), strict=True)
        )

    remaining = max(0.0, cost_of(view, site.events) - copy_seconds)
    return choose_outcomes(
        view, change, lambda: tuple(call_changes.shorten_calls(line, ("download",), each) for each in (0.0, remaining))
    )


def check_seconds(view: CaptureView, site: CallSite) -> tuple[float, float]:
    """Return the least and the most seconds per step of host work that checks read-backs.

    Without device records, return zeros.
    """
    timeline = build_timeline(view) if view.device is not None else None
    if timeline is None or view.device is None or not view.device.seconds:
        return 0.0, 0.0
    least, most = check_changes.check_seconds(timeline, line_of(site))
    scale = view.step_seconds / view.device.seconds  # recorded steps are longer than unprofiled steps
    return least * scale, most * scale


def prefetch_input(
    view: CaptureView, site: CallSite, batch_seconds: float, *, in_worker_processes: bool = True
) -> Changes:
    """Prefetch batches during the step. Producers need `batch_seconds` for the batches of a step.

    Worker processes need longer, because they share the caches and the memory of the machine. A batch also takes at
    least the time to copy it from a worker process, and the loop needs time to receive it. In a process that uses a
    GPU, a thread gains nothing for batches that take less than MIN_PREFETCHED_SECONDS. Without a GPU, the step itself
    needs cores and the GIL too; see `input_costs`.
    """
    if not computes_on_gpu(view):
        prefetch = input_costs.prefetch_in_processes if in_worker_processes else input_costs.prefetch_in_thread
        return prefetch(view, site, batch_seconds)
    if not in_worker_processes:
        if view.device is not None and batch_seconds < MIN_PREFETCHED_SECONDS * (site.per_step or 1):
            return (call_changes.unchanged,)
        overlap = changes.prefetch_input(producer_seconds=batch_seconds)
        return (overlap,) if view.device is not None else (overlap, changes.chain((overlap, limit_by_cores(view))))
    copy_seconds, batch_nbytes = site.nbytes / WORKERS_BYTES_PER_SECOND, site.nbytes / (site.per_step or 1)
    efficiencies, hand_over = (1.0, 1.0), input_costs.HAND_OVER_SECONDS
    if view.device is not None:
        efficiencies = WORKER_EFFICIENCIES
        hand_over = GPU_HAND_OVER_SECONDS if batch_nbytes < SMALL_GPU_BATCH_NBYTES else (0.0, 0.0)
    best, worst = (
        changes.chain(
            (
                changes.prefetch_input(producer_seconds=max(batch_seconds / efficiency, copy_seconds)),
                changes.add_work(seconds * (site.per_step or 1)),
            )
        )
        for efficiency, seconds in zip(efficiencies, hand_over, strict=True)
    )
    return (best, worst) if view.device is not None else (best, changes.chain((worst, limit_by_cores(view))))


def feed_from_memory(view: CaptureView, site: CallSite) -> Changes:
    """Take batches from a feed of arrays.

    At worst, the loop needs some time for each batch. Without a GPU, it also gathers the rows itself at worst.
    """
    copy_seconds, batches = site.nbytes / FEED_BYTES_PER_SECOND, site.per_step or 1
    prefetch = changes.prefetch_input(producer_seconds=copy_seconds)
    seconds = FEED_SECONDS * batches
    if not computes_on_gpu(view):
        seconds = input_costs.ARRAY_FEED_SECONDS * batches + copy_seconds
    return prefetch, changes.chain((prefetch, changes.add_work(seconds)))


def make_less_in_python(view: CaptureView, site: CallSite, background_seconds: float) -> Changes:
    """Let another thread make batches with less Python code than now.

    Now, this thread makes batches for `background_seconds` per step. At best, the loop will no longer wait for batches,
    and no longer for the GIL and the cores that this thread uses now. At worst, nothing changes.
    """
    python, compiled = input_costs.contention_seconds(view, site, background_seconds)
    without_contention = (
        changes.prefetch_input(producer_seconds=0.0),
        changes.remove_work(python, ("work", "download")),
        changes.remove_work(compiled, ("run",)),
    )
    busy, cores = view.capture.facts.get("busy_cores"), view.capture.machine.get("cores") or 1
    own = busy * view.step_seconds if isinstance(busy, int | float) else 0.0
    limit = call_changes.take_at_least((own - background_seconds) / cores)  # the CPU time that remains
    return changes.chain((*without_contention, limit)), call_changes.unchanged


def hide_waits(view: CaptureView, site: CallSite) -> Changes:
    """Make the input so fast that the loop does not wait; at worst, nothing changes."""
    return changes.prefetch_input(producer_seconds=0.0), call_changes.unchanged


def shorten_input(view: CaptureView, share: float) -> Changes:
    """Shorten the waits for input to `share` of their time; at worst, nothing changes."""
    return changes.speed_up_producers(share), call_changes.unchanged


def map_whole_batches(view: CaptureView) -> Changes:
    """Let the map of a tf.data pipeline handle whole batches instead of rows."""
    return tuple(changes.speed_up_producers(share) for share in WHOLE_BATCH_SHARES)


def _has_free_cores(view: CaptureView) -> bool:
    """Whether cores were free in the unprofiled steps; True if this was not measured."""
    busy, cores = view.capture.facts.get("busy_cores"), view.capture.machine.get("cores") or 1
    return not isinstance(busy, int | float) or busy <= cores * (1 - FREE_SHARE)


def limit_to_cores(view: CaptureView, outcomes: Changes) -> Changes:
    """Return outcomes that make batches during the step, limited if no core is free."""
    if _has_free_cores(view):
        return outcomes
    return tuple(changes.chain((outcome, limit_by_cores(view))) for outcome in outcomes)


def remove_calls(view: CaptureView, *sites: CallSite, later_sites: tuple[CallSite, ...] = ()) -> Changes:
    """Make the calls of `sites` once, before the loop.

    The loop may need the calls of `later_sites` only because of the calls of `sites`. So at best, the calls of
    `later_sites` disappear too; at worst, they remain.
    """
    removal = changes.chain(_removal(site) for site in sites)
    if not later_sites:
        return (removal,)
    return changes.chain((removal, *map(_removal, later_sites))), removal


def call_on_batches(view: CaptureView, sites: Sequence[CallSite], python_seconds: float, calls: float) -> Changes:
    """Let Keras handle single batches without a pipeline, with `calls` calls per step.

    Now, the loop makes the recorded calls of `sites`, and the lines of these calls take `python_seconds` per step in
    addition. The work of the device remains. Each new call takes ON_BATCH_SECONDS. At worst, compiled calls and uploads
    take as long as now in addition.
    """
    kept = [site for site in sites if site.kind in (EventKind.RUN, EventKind.UPLOAD)]
    removals = [_removal(site) for site in sites if site not in kept]
    short = [call_changes.scale_calls(line_of(site), (site.kind.value,), 0.0) for site in kept]
    python = changes.remove_work(python_seconds, ("work",))
    return tuple(
        changes.chain((*removals, *shortened, python, changes.add_work(calls * seconds)))
        for shortened, seconds in zip((short, []), ON_BATCH_SECONDS, strict=True)
    )


def _removal(site: CallSite) -> Change:
    return changes.remove_calls(line_of(site), (site.kind.value,))


def remove_work(
    view: CaptureView, seconds: float, *, least: float | None = None, kinds: tuple[str, ...] = ("work",)
) -> Changes:
    """Remove `seconds` per step from host actions of these kinds.

    With `least`, at worst only `least` seconds disappear.
    """
    outcomes = (seconds,) if least is None else (seconds, least)
    return tuple(changes.remove_work(each, kinds) for each in outcomes)


def shorten_run(view: CaptureView, seconds: float) -> Changes:
    """Shorten the mean step by `seconds`, such as those of pauses or of growth."""
    return (changes.scale_time(max(0.0, 1 - seconds / view.step_seconds) if view.step_seconds else 1.0),)


def move_to_device(view: CaptureView, *sites: CallSite, untimed_seconds: float = 0.0) -> Changes:
    """Run the operations of these sites on the device that has their data, without moves.

    `untimed_seconds` is the estimated time of moves inside compiled calls. Without device records, nothing changes at
    worst: the recorded time may be a wait for the device, which remains.
    """
    lines = [*map(line_of, sites)]
    timed = [call_changes.scale_calls(line, ("move",), 0.0) for line in lines]
    without_moves = changes.chain((*timed, changes.remove_work(untimed_seconds, ("run",))))  # "run": compiled calls
    return choose_outcomes(
        view, lambda speeds: (changes.move_to_device(*lines),), lambda: (without_moves, call_changes.unchanged)
    )


def compute_on_cpu(view: CaptureView, operations: float, numbers: float) -> Changes:
    """Compute on one CPU core instead of the device.

    A step has `operations` operations, which compute `numbers` array elements in total. Input, other host work, and
    CPU_CALLING_SHARES of the time for calls remain.
    """
    outcomes = zip(CPU_CALL_SECONDS, CPU_NUMBER_SECONDS, CPU_CALLING_SHARES, strict=True)
    return tuple(
        changes.compute_on_host(operations * per_call + numbers * per_number, calling_share=share)
        for per_call, per_number, share in outcomes
    )


def enlarge_batch(view: CaptureView, factor: int) -> Changes:
    """Use batches `factor` times as large.

    A step of the changed timeline has the time for as many rows as a present batch. At best, Python code, launches and
    kernels take as long for the larger batch as for the present one. At worst, this is true only for launches; kernels
    and compiled calls take as long per row as now.
    """
    host_kinds = changes.LAUNCHING_KINDS
    return (
        changes.chain((call_changes.scale_kinds(host_kinds, 1 / factor), scale_kernels(lambda _: True, 1 / factor))),
        call_changes.scale_kinds(("launch",), 1 / factor),
    )


def shrink_kernels(matches: Callable[[DeviceOperation], bool], *, least_share: float, most_share: float) -> Changes:
    """Let matching kernels take `least_share` of their time at best, and `most_share` at worst."""
    return tuple(scale_kernels(matches, share) for share in (least_share, most_share))


def launch_without_waiting(view: CaptureView) -> Changes:
    """Launch kernels without waiting for each kernel.

    This lets host and device work in parallel. So at best, a step takes half of its time; at worst, nothing changes.
    """
    half = view.step_seconds / 2
    return changes.chain((changes.remove_work(half), call_changes.take_at_least(half))), call_changes.unchanged
