"""The timeline changes of each kind of cure, with the speeds of the machine.

A cure with several changes has several possible outcomes. Without a device record, a cure has no changes.
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
]

MAKING_BYTES_PER_SECOND = 3.5e9  # NumPy assembles rows in new memory; the slowest measurement
WORKERS_BYTES_PER_SECOND = 2.1e9  # from loader processes through the pinning thread; measured 1.8e9 to 2.4e9
FEED_BYTES_PER_SECOND = 17e9  # four threads gather rows into page-locked memory
GRAPH_SECONDS = 5e-7  # host time per operation of a CUDA graph
PROGRAM_SECONDS = 2.5e-4, 6e-4  # host time to call a jitted function with ten arrays; covers 90 % of measured calls
# Host time to call a tf.function, and per kernel, which its executor launches one by one. Measured calls without waits
# took 0.9 to 1.4 ms with 36 to 43 kernels, and 3.3 ms with 428.
FUNCTION_SECONDS, EXECUTOR_SECONDS = (4e-4, 8e-4), (5e-6, 8e-6)
FUSED_SHARE = 0.6  # of the device time, if a compiler fuses the operations between matrix products
# Passes over all bytes for a check on the device: one for a sum; four to subtract, take absolute values, compare, add.
CHECK_PASSES = 1, 4
ASSUMPTION = ". Assumption: "  # the text after it in a cure's basis stays when a simulation replaces the basis
Changes = tuple[Change, ...]


def remove_uploads(view: CaptureView, site: CallSite, share: float = 1.0) -> Changes:
    """Remove the uploads of a site, or a share of them."""
    return _if_recorded(view, lambda speeds: (upload_changes.remove_uploads(_line(site), share=share),))


def keep_on_device(view: CaptureView, site: CallSite) -> Changes:
    """Keep the data on the device. The loop may or may not wait for the row indices."""

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
    """Let a feed make and upload batches during the step."""
    return prefetch_line_with_feed(view, _line(site))


def prefetch_line_with_feed(view: CaptureView, line: int) -> Changes:
    """Let a feed make and upload what this line uploads."""

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
    """Upload one step early, during the computation."""
    return _if_recorded(view, lambda speeds: (upload_changes.overlap_copies(line),))


def narrow_dtype(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload a share of the bytes."""
    return _if_recorded(
        view, lambda speeds: (upload_changes.narrow_dtype(_line(site), share=share, kind=site.kind.value),)
    )


def narrow_and_prefetch(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload a share of the bytes, with a feed, during the step."""
    pairs = zip(narrow_dtype(view, site, share), prefetch_with_feed(view, site), strict=True)
    return tuple(changes.chain(pair) for pair in pairs)


def merge_uploads(view: CaptureView, site: CallSite) -> Changes:
    """Replace many uploads by one."""

    def change(speeds: MachineSpeeds) -> Changes:
        given = {"bytes_per_second": speeds.pageable, "host_bytes_per_second": speeds.host_copy}
        return (upload_changes.merge_uploads(_line(site), **given),)

    return _if_recorded(view, change)


def defer_waits(view: CaptureView, site: CallSite) -> Changes:
    """Remove the waits of a site."""
    return _if_recorded(view, lambda speeds: (changes.defer_waits(_line(site)),))


def check_on_device(view: CaptureView, site: CallSite, *, waits: bool) -> Changes:
    """Check pulled data on the device. This removes all or part of the host work after the pull."""

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            check_changes.check_on_device(
                _line(site), bytes_per_second=speeds.gather, passes=passes, waits=waits, doubts=doubts
            )
            for passes, doubts in zip(CHECK_PASSES, (False, True), strict=True)
        )

    return _if_recorded(view, change)


def check_seconds(view: CaptureView, site: CallSite) -> tuple[float, float]:
    """Return the seconds per step of host work on pulled data, at least and at most."""
    timeline = build_timeline(view) if view.device is not None else None
    if timeline is None or view.device is None or not view.device.seconds:
        return 0.0, 0.0
    least, most = check_changes.check_seconds(timeline, _line(site))
    scale = view.step_seconds / view.device.seconds
    return least * scale, most * scale


def prefetch_input(view: CaptureView, site: CallSite, making: float, *, by_processes: bool = True) -> Changes:
    """Prefetch batches that take `making` seconds each; processes must also hand them over."""
    handing = site.nbytes / WORKERS_BYTES_PER_SECOND if by_processes else 0.0
    return _if_recorded(view, lambda speeds: (changes.prefetch_input(producer_seconds=max(making, handing)),))


def prefetch_batches(view: CaptureView, site: CallSite, making: float, producers: int) -> Changes:
    """Let `producers` make the batches that take the loop `making` seconds each."""
    fast = max(making / max(1, producers), site.nbytes / FEED_BYTES_PER_SECOND)
    slow = max(fast, site.nbytes / WORKERS_BYTES_PER_SECOND) if "torch" in view.frameworks else fast
    return _if_recorded(
        view,
        lambda speeds: tuple(
            upload_changes.prefetch_batches(_line(site), seconds=making, producer_seconds=producing)
            for producing in dict.fromkeys((fast, slow))
        ),
    )


def remove_calls(view: CaptureView, *sites: CallSite) -> Changes:
    """Make these calls once, before the loop."""
    gone = [changes.remove_calls(_line(site), (site.kind.value,)) for site in sites]
    return _if_recorded(view, lambda speeds: (changes.chain(gone),))


def move_to_device(view: CaptureView, *sites: CallSite) -> Changes:
    """Run the operation on the device of its data, without the moves."""
    return _if_recorded(view, lambda speeds: (changes.move_to_device(*map(_line, sites)),))


def compile_step(view: CaptureView, framework: str, *, other_seconds: float = 0.0) -> Changes:
    """Compile the step into one call: a graph of the same operations, or a fused program.

    Other operations of the step keep their `other_seconds`.
    """
    if framework in ("tensorflow", "keras"):
        outcomes = [(each, 1.0, once) for each, once in zip(EXECUTOR_SECONDS, FUNCTION_SECONDS, strict=True)]
    elif framework == "jax":
        outcomes = [(0.0, share, once) for share, once in zip((FUSED_SHARE, 1.0), PROGRAM_SECONDS, strict=True)]
    else:
        outcomes = [(GRAPH_SECONDS, share, 0.0) for share in ((1.0,) if framework == "torch" else (1.0, FUSED_SHARE))]
    return _if_recorded(
        view,
        lambda speeds: tuple(
            changes.launch_as_graph(seconds_each=each, device_share=share, seconds_once=once + other_seconds)
            for each, share, once in outcomes
        ),
    )


def _if_recorded(view: CaptureView, change: Callable[[MachineSpeeds], Changes]) -> Changes:
    return change(machine_speeds(view)) if view.device is not None else ()


def _line(site: CallSite) -> int:
    return site.events[0].line if site.events else -1
