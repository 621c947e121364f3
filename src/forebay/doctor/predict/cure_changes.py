"""The outcomes of each kind of cure, as changes of a timeline.

Each function, except `check_seconds`, returns one change of the timeline per possible outcome: usually the best and the
worst. If the capture has device records, the changes apply to the copies and kernels of each call. Otherwise they apply
only to the time of the host.
"""

from collections.abc import Callable
from dataclasses import dataclass

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.eager_time import EagerTime
from forebay.doctor.predict import call_changes, changes, check_changes
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
    "Changes",
    "CallingTime",
    "check_on_device",
    "check_seconds",
    "compile_model",
    "compile_eager_step",
    "compile_step",
    "compute_on_cpu",
    "defer_waits",
    "enlarge_batch",
    "group_keras_steps",
    "hide_waits",
    "launch_without_waiting",
    "move_to_device",
    "prefetch_input",
    "remove_calls",
    "remove_work",
    "run_keras_steps",
    "shorten_input",
    "shorten_run",
    "shrink_kernels",
]

GRAPH_SECONDS = 5e-7  # host time per operation of a CUDA graph
# Host time to call a jitted function with ten arrays, at best and at worst; 90 % of the measured calls are in between.
JITTED_CALL_SECONDS = 2.5e-4, 6e-4
# Host time of a tf.function, at best and at worst. Its executor launches kernels one by one. Measured calls without
# waits took 0.9 to 1.4 ms with 36 to 43 kernels, and 3.3 ms with 428.
TF_FUNCTION_SECONDS = 4e-4, 8e-4  # per call
TF_KERNEL_SECONDS = 5e-6, 8e-6  # per kernel
# A tf.function on the CPU, at best and at worst. Two cores run independent operations at the same time. XLA was off.
TF_OPERATION_SECONDS = 2e-6, 6e-6  # per eager operation that becomes part of the graph
TF_COMPUTING_SHARES = 0.6, 1.0  # of the computing time of eager operations
# Keras on TensorFlow, at best and at worst. Measured on an H200 with three dense layers and batches of 64 rows from
# arrays (2026-11-17): 1.55 ms per step, 0.78 with 50 steps per call, 0.79 with a feed, 0.41 with both; 72 kernels.
KERAS_STEPS_PER_CALL = 50
KERAS_CALL_SECONDS = 3.5e-4, 5.5e-4  # per call of the training function
KERAS_ARRAYS_SECONDS = 2.8e-4, 4.5e-4  # per batch that Keras takes from arrays
KERAS_KERNEL_SECONDS = 5e-6, 6e-6  # per kernel
# Seconds of a compiled call that 50 steps per call save on the CPU, per second that Keras spends outside of the call.
# Measured on two cores (2026-11-17): 1.3 of 2.0 ms for two dense layers, 1.2 of 2.2 ms for an embedding, 2.0 of 7.9 ms
# for two convolutions; Keras spent 0.6, 0.7 and 0.8 ms outside of the call.
KERAS_CALL_SHARES = 0.9, 0.3
# Share of the launch time that remains with torch.compile, at best and at worst. Measured on an H200 (2026-11-17): 0.44
# for a small transformer with mode="reduce-overhead", whose step went from 9.9 to 4.9 ms.
COMPILED_LAUNCH_SHARES = 0.35, 0.55
FUSED_SHARE = 0.6  # of the device time remains at best, if a compiler fuses the operations between matrix products
HAND_OVER_SECONDS = 1e-4, 1e-3  # to hand over a batch from another process, at best and at worst
CPU_CALL_SECONDS = 1e-6, 5e-6  # time of a CPU core per operation: on a fast core, and on a slow one
CPU_NUMBER_SECONDS = 0.5e-9, 4e-9  # time of a CPU core per number: on a fast core, and on a slow one
# Passes over all bytes for a check on the device: one for a sum; four to subtract, take absolute values, compare, add.
CHECK_PASSES = 1, 4
FASTEST_LINK = 60e9  # bytes per second; no PCIe link of 16 lanes is faster


@dataclass(frozen=True, slots=True)
class CallingTime:
    """The seconds per step that Python spends on calling operations."""

    least: float
    most: float


def defer_waits(view: CaptureView, site: CallSite) -> Changes:
    """Wait so rarely that the waits of a site take no time.

    Without device records, the work of the device is unknown. At best it takes as long as the waits, so a step cannot
    become shorter than them. At worst it takes the whole step, and nothing changes.
    """
    line, wait_seconds = line_of(site), cost_of(view, site.events)
    best_on_host = changes.chain((changes.defer_waits(line), call_changes.take_at_least(wait_seconds)))
    return choose_outcomes(
        view,
        lambda speeds: (changes.defer_waits(line),),
        lambda: (best_on_host, call_changes.unchanged),
    )


def check_on_device(view: CaptureView, site: CallSite, *, waits: bool) -> Changes:
    """Check data on the device instead of reading it back. With `waits`, the loop waits for the result of the check.

    At best, this removes all host work after the read-back. At worst, it removes only the share of this work that is
    certainly the check. Without device records, it removes the read-back at best, and at worst only the time that its
    copy takes on the fastest link.
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
    """Return the seconds per step of host work that checks read-backs, at least and at most.

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
    """Prefetch batches during the step. The producers together need `batch_seconds` for one batch.

    With `in_worker_processes`, a batch takes at least the time to copy it from a worker process, and the loop needs
    HAND_OVER_SECONDS to receive it.
    """
    copy_seconds = site.nbytes / WORKERS_BYTES_PER_SECOND if in_worker_processes else 0.0
    prefetch = changes.prefetch_input(producer_seconds=max(batch_seconds, copy_seconds))
    if view.device is not None:
        return (prefetch,)
    hand_over = HAND_OVER_SECONDS if in_worker_processes else (0.0, 0.0)
    return (
        changes.chain((prefetch, changes.add_work(hand_over[0]))),
        changes.chain((prefetch, changes.add_work(hand_over[1]), limit_by_cores(view))),
    )


def hide_waits(view: CaptureView, site: CallSite) -> Changes:
    """Make the input faster. At best, the loop no longer waits for it; at worst, nothing changes."""
    return changes.prefetch_input(producer_seconds=0.0), call_changes.unchanged


def shorten_input(view: CaptureView, share: float) -> Changes:
    """Make the input faster. At best, the waits for it take `share` of their time; at worst, nothing changes."""
    return call_changes.scale_kinds(("input",), share), call_changes.unchanged


def remove_calls(view: CaptureView, *sites: CallSite, later_sites: tuple[CallSite, ...] = ()) -> Changes:
    """Make the calls of `sites` once, before the loop.

    The calls of `later_sites` may be needed only because of these calls. At best they disappear too; at worst they
    remain.
    """
    removal = changes.chain(_removal(site) for site in sites)
    if not later_sites:
        return (removal,)
    return changes.chain((removal, *map(_removal, later_sites))), removal


def _removal(site: CallSite) -> Change:
    return changes.remove_calls(line_of(site), (site.kind.value,))


def remove_work(
    view: CaptureView, seconds: float, *, least: float | None = None, kinds: tuple[str, ...] = ("work",)
) -> Changes:
    """Remove `seconds` per step from host actions of these kinds; with `least`, at worst only `least` seconds."""
    outcomes = (seconds,) if least is None else (seconds, least)
    return tuple(changes.remove_work(each, kinds) for each in outcomes)


def shorten_run(view: CaptureView, seconds: float) -> Changes:
    """Shorten the mean step by `seconds` that only some steps of the run take: pauses, or growth of the step time."""
    return (changes.scale_time(max(0.0, 1 - seconds / view.step_seconds) if view.step_seconds else 1.0),)


def move_to_device(view: CaptureView, *sites: CallSite, untimed_seconds: float = 0.0) -> Changes:
    """Run the operations of these sites on the device that has their data, without moves.

    `untimed_seconds` is the estimated time of moves inside compiled calls. Without device records, part of the time may
    be a wait for the device, which remains.
    """
    lines = [*map(line_of, sites)]
    timed = [call_changes.scale_calls(line, ("move",), 0.0) for line in lines]
    without_moves = changes.chain((*timed, changes.remove_work(untimed_seconds, ("run",))))  # "run": compiled calls
    return choose_outcomes(
        view, lambda speeds: (changes.move_to_device(*lines),), lambda: (without_moves, call_changes.unchanged)
    )


def compile_step(view: CaptureView, framework: str, calling: CallingTime) -> Changes:
    """Compile the step into one call: a graph of its operations, or a fused program.

    Without device records, compiling removes the time of calling operations: at best `calling.most`, at worst half of
    `calling.least`. In JAX, it removes all of `calling.least`: no Python runs inside of a jitted function.
    """
    # Each outcome has host seconds per operation, a share of the device time, and host seconds per step.
    if framework in ("tensorflow", "keras"):
        outcomes = [
            (per_kernel, 1.0, per_step)
            for per_kernel, per_step in zip(TF_KERNEL_SECONDS, TF_FUNCTION_SECONDS, strict=True)
        ]
    elif framework == "jax":
        outcomes = [
            (0.0, share, per_step) for share, per_step in zip((FUSED_SHARE, 1.0), JITTED_CALL_SECONDS, strict=True)
        ]
    else:
        outcomes = [(GRAPH_SECONDS, share, 0.0) for share in ((1.0,) if framework == "torch" else (1.0, FUSED_SHARE))]
    return choose_outcomes(
        view,
        lambda speeds: tuple(
            changes.launch_as_graph(seconds_per_operation=per_operation, device_share=share, seconds_per_step=per_step)
            for per_operation, share, per_step in outcomes
        ),
        lambda: remove_work(
            view,
            calling.most,
            least=calling.least if framework == "jax" else calling.least / 2,
            kinds=("work", "transform"),
        ),
    )


def compile_eager_step(view: CaptureView, framework: str, calling: CallingTime, time: EagerTime | None) -> Changes:
    """Compile a step of eager operations. `time` is its time by samples of the stack; None if it has too few.

    For TensorFlow, samples show which part of the host's time the framework takes. A graph needs the computing time of
    the operations, and little time per operation; other work of the script remains.
    """
    if time is None or framework not in ("tensorflow", "keras"):
        return compile_step(view, framework, calling)
    if view.device is not None:
        costs = zip(TF_KERNEL_SECONDS, TF_FUNCTION_SECONDS, strict=True)
        return tuple(
            changes.chain((_launch_all_as_graph(per_kernel, per_step), changes.add_work(time.other_seconds)))
            for per_kernel, per_step in costs
        )
    if time.computing is None:
        return compile_step(view, framework, calling)
    outcomes = zip(TF_OPERATION_SECONDS, TF_COMPUTING_SHARES, TF_FUNCTION_SECONDS, strict=True)
    kept = [time.operations * each + time.computing * share + per_step for each, share, per_step in outcomes]
    return tuple(changes.remove_work(max(0.0, time.seconds - seconds)) for seconds in kept)


def _launch_all_as_graph(seconds_per_kernel: float, seconds_per_step: float) -> Change:
    return changes.launch_as_graph(
        seconds_per_operation=seconds_per_kernel, seconds_per_step=seconds_per_step, longest_launch=float("inf")
    )


def compile_model(view: CaptureView) -> Changes:
    """Compile a PyTorch model. COMPILED_LAUNCH_SHARES of the launch time remain, at best and at worst."""
    return tuple(changes.scale_launches(share) for share in COMPILED_LAUNCH_SHARES)


def run_keras_steps(view: CaptureView, *, is_grouped: bool, is_fed: bool) -> Changes:
    """Let Keras make many steps per call (`is_grouped`), or take its batches from a feed (`is_fed`), or both.

    Without a feed, each step also takes a batch from the pipeline that Keras builds for arrays.
    """
    calls = KERAS_STEPS_PER_CALL if is_grouped else 1
    kernels = view.device.kernels_per_step if view.device is not None else 0.0
    outcomes = zip(KERAS_CALL_SECONDS, KERAS_ARRAYS_SECONDS, KERAS_KERNEL_SECONDS, strict=True)
    per_step = [
        call / calls + (0.0 if is_fed else arrays) + kernels * per_kernel for call, arrays, per_kernel in outcomes
    ]
    return tuple(
        changes.chain(
            (changes.remove_waits, changes.launch_as_graph(seconds_per_operation=0.0, seconds_per_step=seconds))
        )
        for seconds in per_step
    )


def group_keras_steps(view: CaptureView, outside: float) -> Changes:
    """Let Keras make many steps per call on the CPU. It now spends `outside` seconds per step outside of the call.

    This time is then spent once per call. A part of the call is saved too: preparing its arguments and its results.
    """
    seconds = outside * (1 - 1 / KERAS_STEPS_PER_CALL)
    return tuple(
        changes.chain(
            (changes.remove_work(seconds, ("work", "download")), changes.remove_work(outside * share, ("run",)))
        )
        for share in KERAS_CALL_SHARES
    )


def compute_on_cpu(view: CaptureView, operations: float, numbers: float) -> Changes:
    """Compute on one CPU core instead of the device. Input and other host work remain.

    A step has `operations` operations, which compute `numbers` array elements in total.
    """
    return tuple(
        changes.compute_on_host(operations * per_call + numbers * per_number)
        for per_call, per_number in zip(CPU_CALL_SECONDS, CPU_NUMBER_SECONDS, strict=True)
    )


def enlarge_batch(view: CaptureView, factor: int) -> Changes:
    """Use batches `factor` times as large. The changed timeline has the time for as many rows as a batch has now.

    At best, Python, launches and kernels take as long for the larger batch as for the present one. At worst, only
    launches do; kernels and compiled calls take as long per row as now.
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
    """Launch kernels without waiting for each.

    Host and device then work in parallel. So at best, a step takes half of its time; at worst, nothing changes.
    """
    half = view.step_seconds / 2
    return changes.chain((changes.remove_work(half), call_changes.take_at_least(half))), call_changes.unchanged
