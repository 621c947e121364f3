"""The timeline changes of each kind of cure, with the speeds of the machine.

Each function, except `check_seconds`, returns one change per possible outcome of the cure. Without a device record, it
returns no changes.
"""

from collections.abc import Callable

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.predict import changes, check_changes, upload_changes
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.machines import MachineSpeeds, machine_speeds

__all__ = [
    "ASSUMPTION",
    "prefetch_with_feed",
    "check_on_device",
    "compile_step",
    "prefetch_conversion",
    "defer_waits",
    "prefetch_batches",
    "move_to_device",
    "narrow_dtype",
    "narrow_and_prefetch",
    "keep_on_device",
    "overlap_copies",
    "page_lock_copies",
    "prefetch_input",
    "merge_uploads",
    "remove_calls",
    "prefetch_line_with_feed",
    "check_seconds",
    "remove_uploads",
    "remove_work",
]

MAKING_BYTES_PER_SECOND = 3.5e9  # NumPy assembles rows in new memory; the slowest measurement
WORKERS_BYTES_PER_SECOND = 2.1e9  # from worker processes through the pinning thread; measured 1.8e9 to 2.4e9
FEED_BYTES_PER_SECOND = 17e9  # four worker threads gather rows into page-locked memory
GRAPH_SECONDS = 5e-7  # host time per operation of a CUDA graph
# Host time to call a jitted function with ten arrays, at best and at worst; 90 % of the measured calls are in between.
JITTED_CALL_SECONDS = 2.5e-4, 6e-4
# Host time of a tf.function, at best and at worst. Its executor launches kernels one by one. Measured calls without
# waits took 0.9 to 1.4 ms with 36 to 43 kernels, and 3.3 ms with 428.
TF_FUNCTION_SECONDS = 4e-4, 8e-4  # per call
TF_KERNEL_SECONDS = 5e-6, 8e-6  # per kernel
FUSED_SHARE = 0.6  # of the device time remains at best, if a compiler fuses the operations between matrix products
# Passes over all bytes for a check on the device: one for a sum; four to subtract, take absolute values, compare, add.
CHECK_PASSES = 1, 4
# A marker in `Cure.basis`. If a gain is simulated, a new text replaces the part before the marker.
ASSUMPTION = ". Assumption: "
Changes = tuple[Change, ...]


def remove_uploads(view: CaptureView, site: CallSite, share: float = 1.0) -> Changes:
    """Remove the uploads of a site, or a share of them."""
    return _if_recorded(view, lambda speeds: (upload_changes.remove_uploads(_line(site), share=share),))


def keep_on_device(view: CaptureView, site: CallSite) -> Changes:
    """Keep the data on the device, and upload row indices. One outcome waits for this upload, the other does not."""

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            upload_changes.gather_on_device(
                _line(site),
                gather_bytes_per_second=speeds.gather,
                making_bytes_per_second=MAKING_BYTES_PER_SECOND,
                waits=waits,
            )
            for waits in (False, True)
        )

    return _if_recorded(view, change)


def page_lock_copies(view: CaptureView, site: CallSite) -> Changes:
    """Upload from page-locked memory without a wait."""
    return _if_recorded(
        view, lambda speeds: (upload_changes.page_lock_copies(_line(site), bytes_per_second=speeds.pinned),)
    )


def prefetch_with_feed(view: CaptureView, site: CallSite) -> Changes:
    """Let a feed make and upload the batches of a site during the step."""
    return prefetch_line_with_feed(view, _line(site))


def prefetch_line_with_feed(view: CaptureView, line: int) -> Changes:
    """Let a feed make and upload the batches of a line during the step."""

    def change(speeds: MachineSpeeds) -> Changes:
        return (
            upload_changes.prefetch_uploads(
                line,
                bytes_per_second=speeds.pinned,
                producer_bytes_per_second=FEED_BYTES_PER_SECOND,
                making_bytes_per_second=MAKING_BYTES_PER_SECOND,
            ),
        )

    return _if_recorded(view, change)


def prefetch_conversion(view: CaptureView, site: CallSite) -> Changes:
    """Let tf.data threads make batches, as fast as a feed or as one NumPy thread.

    The batches are in pageable memory, and the step uploads them.
    """

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            upload_changes.prefetch_conversion(
                _line(site), making_bytes_per_second=MAKING_BYTES_PER_SECOND, producer_bytes_per_second=speed
            )
            for speed in (FEED_BYTES_PER_SECOND, MAKING_BYTES_PER_SECOND)
        )

    return _if_recorded(view, change)


def overlap_copies(view: CaptureView, line: int) -> Changes:
    """Upload the data of a line one step early, during the computation."""
    return _if_recorded(view, lambda speeds: (upload_changes.overlap_copies(line),))


def narrow_dtype(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload only a share of the bytes."""
    return _if_recorded(
        view, lambda speeds: (upload_changes.narrow_dtype(_line(site), share=share, kind=site.kind.value),)
    )


def narrow_and_prefetch(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload only a share of the bytes, with a feed, during the step."""
    pairs = zip(narrow_dtype(view, site, share), prefetch_with_feed(view, site), strict=True)
    return tuple(changes.chain(pair) for pair in pairs)


def merge_uploads(view: CaptureView, site: CallSite) -> Changes:
    """Replace the uploads of a step by one."""

    def change(speeds: MachineSpeeds) -> Changes:
        return (
            upload_changes.merge_uploads(
                _line(site), bytes_per_second=speeds.pageable, host_bytes_per_second=speeds.host_copy
            ),
        )

    return _if_recorded(view, change)


def defer_waits(view: CaptureView, site: CallSite) -> Changes:
    """Wait so rarely that the waits of a site take no time."""
    return _if_recorded(view, lambda speeds: (changes.defer_waits(_line(site)),))


def check_on_device(view: CaptureView, site: CallSite, *, waits: bool) -> Changes:
    """Check data on the device instead of reading it back.

    At best, this removes all host work after the read-back; at worst, only the share that is surely the check.
    """

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            check_changes.check_on_device(
                _line(site), bytes_per_second=speeds.gather, passes=passes, waits=waits, is_cautious=is_cautious
            )
            for passes, is_cautious in zip(CHECK_PASSES, (False, True), strict=True)
        )

    return _if_recorded(view, change)


def check_seconds(view: CaptureView, site: CallSite) -> tuple[float, float]:
    """Return the seconds per step of host work that checks read-backs, at least and at most.

    Without a device record, return zeros.
    """
    timeline = build_timeline(view) if view.device is not None else None
    if timeline is None or view.device is None or not view.device.seconds:
        return 0.0, 0.0
    least, most = check_changes.check_seconds(timeline, _line(site))
    scale = view.step_seconds / view.device.seconds
    return least * scale, most * scale


def prefetch_input(
    view: CaptureView, site: CallSite, batch_seconds: float, *, in_worker_processes: bool = True
) -> Changes:
    """Prefetch batches during the step. The producers together need `batch_seconds` for one batch.

    With `in_worker_processes`, a batch takes at least the time to copy it from a worker process.
    """
    copy_seconds = site.nbytes / WORKERS_BYTES_PER_SECOND if in_worker_processes else 0.0
    producer_seconds = max(batch_seconds, copy_seconds)
    return _if_recorded(view, lambda speeds: (changes.prefetch_input(producer_seconds=producer_seconds),))


def prefetch_batches(view: CaptureView, site: CallSite, batch_seconds: float, producers: int) -> Changes:
    """Let several producers make the batches. The loop now needs `batch_seconds` for one batch.

    At best, a feed copies the batches. In scripts with PyTorch, worker processes copy them at worst.
    """
    fast = max(batch_seconds / max(1, producers), site.nbytes / FEED_BYTES_PER_SECOND)
    slow = max(fast, site.nbytes / WORKERS_BYTES_PER_SECOND) if "torch" in view.frameworks else fast
    return _if_recorded(
        view,
        lambda speeds: tuple(
            upload_changes.prefetch_batches(_line(site), seconds=batch_seconds, producer_seconds=producer_seconds)
            for producer_seconds in dict.fromkeys((fast, slow))
        ),
    )


def remove_calls(view: CaptureView, *sites: CallSite) -> Changes:
    """Make these calls once, before the loop."""
    removals = [changes.remove_calls(_line(site), (site.kind.value,)) for site in sites]
    return _if_recorded(view, lambda speeds: (changes.chain(removals),))


def remove_work(view: CaptureView, seconds: float) -> Changes:
    """Remove `seconds` per step of the host's own work."""
    return _if_recorded(view, lambda speeds: (changes.remove_work(seconds),))


def move_to_device(view: CaptureView, *sites: CallSite) -> Changes:
    """Run the operations of these sites on the device that has their data, without moves."""
    return _if_recorded(view, lambda speeds: (changes.move_to_device(*map(_line, sites)),))


def compile_step(view: CaptureView, framework: str, *, other_seconds: float = 0.0) -> Changes:
    """Compile the step into one call: a graph of its operations, or a fused program.

    `other_seconds` is the host time per step of operations that cannot be compiled.
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
    return _if_recorded(
        view,
        lambda speeds: tuple(
            changes.launch_as_graph(
                seconds_per_operation=per_operation, device_share=share, seconds_per_step=per_step + other_seconds
            )
            for per_operation, share, per_step in outcomes
        ),
    )


def _if_recorded(view: CaptureView, make_changes: Callable[[MachineSpeeds], Changes]) -> Changes:
    """Call `make_changes` if the capture has a device record; otherwise return no changes."""
    return make_changes(machine_speeds(view)) if view.device is not None else ()


def _line(site: CallSite) -> int:
    """Return the line index of a call site; -1 if it has no events."""
    return site.events[0].line if site.events else -1
