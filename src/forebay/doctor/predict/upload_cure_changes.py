"""The outcomes of each cure of uploads, as changes of a timeline.

Each function returns one change of the timeline per outcome; its docstring describes the cure. With device records, the
changes apply to the copies of each call. Without them, the changes apply only to the time of the host.
"""

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.predict import call_changes, changes, upload_changes
from forebay.doctor.predict.machines import MachineSpeeds, machine_speeds
from forebay.doctor.predict.outcomes import (
    WORKERS_BYTES_PER_SECOND,
    Changes,
    choose_outcomes,
    limit_by_cores,
    line_of,
)
from forebay.doctor.predict.upload_changes import UPLOAD_KINDS

__all__ = [
    "join_with_numpy",
    "keep_on_device",
    "merge_uploads",
    "narrow_and_prefetch",
    "narrow_dtype",
    "overlap_copies",
    "page_lock_copies",
    "prefetch_batches",
    "prefetch_conversion",
    "prefetch_line_with_feed",
    "prefetch_with_feed",
    "remove_uploads",
    "store_in_arrays",
]

MAKING_BYTES_PER_SECOND = 3.5e9  # NumPy assembles rows in new memory; the slowest measurement
FEED_BYTES_PER_SECOND = 17e9  # four worker threads gather rows into page-locked memory
# Rate at which a framework converts an array, which copies its bytes. At best, this is the rate of memory copies by one
# core; at worst, the rate of TensorFlow, the slowest framework.
CONVERSION_BYTES_PER_SECOND = 10e9, 1e9
# To join arrays with `np.stack`, at best and at worst: seconds per call, and seconds per array. Measured on one of two
# cores of a virtual machine (2026-11-19): 5 us for 4 arrays of 32 B, 21 us for 32 of 256 B, 90 us for 64 of 4 KiB.
JOIN_CALL_SECONDS = 1e-6, 10e-6
JOIN_PIECE_SECONDS = 0.2e-6, 1.5e-6
# To make one array of the framework from the joined array, at best and at worst. Measured on the same machine: 4 us for
# `torch.from_numpy`, 42 us for `tf.convert_to_tensor`, 57 us for `jnp.asarray`; 7 us for an argument of a jitted
# function.
CONVERT_SECONDS = 2e-6, 80e-6
ARGUMENT_SECONDS = 1e-6, 15e-6


def remove_uploads(view: CaptureView, site: CallSite, share: float = 1.0) -> Changes:
    """Remove `share` of the uploads of a site."""
    line = line_of(site)
    return choose_outcomes(
        view,
        lambda speeds: (upload_changes.remove_uploads(line, share=share),),
        lambda: (call_changes.scale_calls(line, UPLOAD_KINDS, 1 - share),),
    )


def store_in_arrays(view: CaptureView, site: CallSite) -> Changes:
    """Convert arrays instead of Python lists, at CONVERSION_BYTES_PER_SECOND."""
    return tuple(
        call_changes.shorten_calls(line_of(site), UPLOAD_KINDS, site.nbytes / speed)
        for speed in CONVERSION_BYTES_PER_SECOND
    )


def join_with_numpy(view: CaptureView, site: CallSite, pieces: float, *, converts: bool = True) -> Changes:
    """Join the `pieces` arrays of each call with NumPy, and convert the joined array.

    Without `converts`, the script does not convert the joined array, but passes it to a compiled call, which uploads
    it.
    """
    line, calls = line_of(site), site.per_step
    copies = 2 if converts else 1
    outcomes = [
        calls * (call + pieces * piece + one) + copies * site.nbytes / speed
        for call, piece, one, speed in zip(
            JOIN_CALL_SECONDS,
            JOIN_PIECE_SECONDS,
            CONVERT_SECONDS if converts else ARGUMENT_SECONDS,
            CONVERSION_BYTES_PER_SECOND,
            strict=True,
        )
    ]
    shorten = [call_changes.shorten_calls(line, UPLOAD_KINDS, seconds) for seconds in outcomes]

    def change(speeds: MachineSpeeds) -> Changes:
        merge = upload_changes.merge_uploads(
            line, bytes_per_second=speeds.pageable, host_bytes_per_second=speeds.host_copy
        )
        return tuple(changes.chain((merge, each)) for each in shorten)

    return choose_outcomes(view, change, lambda: tuple(shorten))


def keep_on_device(view: CaptureView, site: CallSite) -> Changes:
    """Keep the data on the device, and upload row indices.

    At worst, the loop waits for the upload of the indices. Without device records, half of the time of the present
    upload remains at worst.
    """
    line = line_of(site)

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            upload_changes.gather_on_device(
                line,
                gather_bytes_per_second=speeds.gather,
                making_bytes_per_second=MAKING_BYTES_PER_SECOND,
                waits=waits,
            )
            for waits in (False, True)
        )

    return choose_outcomes(
        view, change, lambda: tuple(call_changes.scale_calls(line, UPLOAD_KINDS, share) for share in (0.0, 0.5))
    )


def page_lock_copies(view: CaptureView, site: CallSite) -> Changes:
    """Upload from page-locked memory without a wait."""
    return choose_outcomes(
        view,
        lambda speeds: (upload_changes.page_lock_copies(line_of(site), bytes_per_second=speeds.pinned),),
        lambda: _hide_uploads(view, site),
    )


def prefetch_with_feed(view: CaptureView, site: CallSite) -> Changes:
    """Let a feed make and upload the batches of a site during the step."""
    return choose_outcomes(
        view, lambda speeds: _prefetch_line(speeds, line_of(site)), lambda: _hide_uploads(view, site)
    )


def prefetch_line_with_feed(view: CaptureView, line: int) -> Changes:
    """Let a feed make and upload the batches of a line; needs device records."""
    return _prefetch_line(machine_speeds(view), line)


def _prefetch_line(speeds: MachineSpeeds, line: int) -> Changes:
    return (
        upload_changes.prefetch_uploads(
            line,
            bytes_per_second=speeds.pinned,
            producer_bytes_per_second=FEED_BYTES_PER_SECOND,
            making_bytes_per_second=MAKING_BYTES_PER_SECOND,
        ),
    )


def prefetch_conversion(view: CaptureView, site: CallSite) -> Changes:
    """Let threads of tf.data make batches in pageable memory, which the step uploads.

    At best, they make batches as fast as a feed; at worst, as fast as one thread with NumPy.
    """

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            upload_changes.prefetch_conversion(
                line_of(site), making_bytes_per_second=MAKING_BYTES_PER_SECOND, producer_bytes_per_second=speed
            )
            for speed in (FEED_BYTES_PER_SECOND, MAKING_BYTES_PER_SECOND)
        )

    return choose_outcomes(view, change, lambda: _hide_uploads(view, site))


def overlap_copies(view: CaptureView, site_or_line: CallSite | int) -> Changes:
    """Upload the data of a site or line one step early, during the computation."""
    if isinstance(site_or_line, int):
        return (upload_changes.overlap_copies(site_or_line),)
    return choose_outcomes(
        view,
        lambda speeds: (upload_changes.overlap_copies(line_of(site_or_line)),),
        lambda: _hide_uploads(view, site_or_line),
    )


def narrow_dtype(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload only `share` of the bytes."""
    return (upload_changes.narrow_dtype(line_of(site), share=share, kind=site.kind.value),)


def narrow_and_prefetch(view: CaptureView, site: CallSite, share: float) -> Changes:
    """Upload only `share` of the bytes, with a feed, during the step."""
    (narrow,) = narrow_dtype(view, site, share)
    return tuple(changes.chain((narrow, prefetch)) for prefetch in prefetch_with_feed(view, site))


def merge_uploads(view: CaptureView, site: CallSite, calls: float) -> Changes:
    """Replace the `calls` uploads of a step by one upload."""
    line, speeds = line_of(site), machine_speeds(view)
    seconds = cost_of(view, site.events) / calls
    copy_seconds = site.nbytes / speeds.host_copy
    return choose_outcomes(
        view,
        lambda speeds: (
            upload_changes.merge_uploads(
                line, bytes_per_second=speeds.pageable, host_bytes_per_second=speeds.host_copy
            ),
        ),
        # To assemble the data, the host copies the bytes once at best, and four times at worst.
        lambda: tuple(
            call_changes.shorten_calls(line, UPLOAD_KINDS, seconds + copies * copy_seconds) for copies in (1, 4)
        ),
    )


def prefetch_batches(view: CaptureView, site: CallSite, batch_seconds: float, producers: int) -> Changes:
    """Let `producers` threads or processes make the batches.

    The loop now needs `batch_seconds` for one batch. At best, the producers are the threads of a feed. In scripts with
    PyTorch, they are worker processes at worst.
    """
    fast = max(batch_seconds / max(1, producers), site.nbytes / FEED_BYTES_PER_SECOND)
    slow = max(fast, site.nbytes / WORKERS_BYTES_PER_SECOND) if "torch" in view.frameworks else fast

    def change(speeds: MachineSpeeds) -> Changes:
        return tuple(
            upload_changes.prefetch_batches(line_of(site), seconds=batch_seconds, producer_seconds=seconds)
            for seconds in dict.fromkeys((fast, slow))
        )

    def change_host() -> Changes:
        removal = changes.remove_work(batch_seconds)
        return (
            changes.chain((removal, call_changes.take_at_least(fast))),
            changes.chain((removal, call_changes.take_at_least(slow), limit_by_cores(view))),
        )

    return choose_outcomes(view, change, change_host)


def _hide_uploads(view: CaptureView, site: CallSite) -> Changes:
    """Let another thread make the uploads of a site during the step.

    At best, the thread copies to a GPU as fast as a feed; without a GPU, it takes as long as the loop does now. At
    worst, it takes as long as the loop does now, and all threads together share the cores.
    """
    seconds, kinds = cost_of(view, site.events), UPLOAD_KINDS
    fastest = min(seconds, site.nbytes / FEED_BYTES_PER_SECOND) if view.has_gpu else seconds
    hide = call_changes.hide_calls(line_of(site), kinds, producer_seconds=seconds)
    best = call_changes.hide_calls(line_of(site), kinds, producer_seconds=fastest)
    return best, changes.chain((hide, limit_by_cores(view)))
