"""What each kind of cure changes in the timeline of a case, with the figures of its machine. Rules give these to cures.

Several changes of one cure are ways it may turn out. Where the device was not recorded there is nothing to change.
"""

from collections.abc import Callable

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.predict import changes, check_changes, upload_changes
from forebay.doctor.predict.build_timeline import build
from forebay.doctor.predict.changes import Change
from forebay.doctor.predict.machines import Figures, figures_for

__all__ = [
    "ASSUMED",
    "ahead",
    "checked",
    "compiled",
    "converted_ahead",
    "deferred",
    "made_ahead",
    "moved",
    "narrowed",
    "narrowed_ahead",
    "on_device",
    "overlapped",
    "page_locked",
    "prefetched",
    "put_together",
    "removed",
    "sent_ahead",
    "spent_behind",
    "without_uploads",
]

MAKING_BYTES_PER_SECOND = 3.5e9  # rows put together by NumPy in fresh memory, at the slowest
WORKERS_BYTES_PER_SECOND = 2.1e9  # batches out of a loader's processes, through its pinning thread: 1.8 to 2.4 seen
FEED_BYTES_PER_SECOND = 17e9  # rows gathered into page-locked memory by four threads
GRAPH_SECONDS = 5e-7  # of the host for each operation of a CUDA graph
PROGRAM_SECONDS = 2.5e-4, 6e-4  # of the host to call a jitted function with ten arrays: of nine in ten calls, as seen
# Of the host for a tf.function: to call it, and for each kernel, which its executor launches one by one. Calls that
# nobody waited in took 0.9 to 1.4 ms with 36 to 43 kernels, and 3.3 ms with 428.
FUNCTION_SECONDS, EXECUTOR_SECONDS = (4e-4, 8e-4), (5e-6, 8e-6)
FUSED = 0.6  # of the device's time, where a compiler puts what lies between matrix products together
# Over all bytes, to look at them on the device: a sum goes over them once; to subtract, to take the absolute value, to
# compare and to add up goes over them once each.
CHECK_PASSES = 1, 4
ASSUMED = "; assumed: "  # what comes behind this in a cure's `how` is told however its win was found
Changes = tuple[Change, ...]


def without_uploads(case: Case, site: Site, share: float = 1.0) -> Changes:
    """They are not done at all."""
    return _with(case, lambda figures: (upload_changes.remove_uploads(_line(site), share=share),))


def on_device(case: Case, site: Site) -> Changes:
    """The data lies there, and rows are taken there: their numbers may be waited for, as the rows are now."""

    def change(figures: Figures) -> Changes:
        return tuple(
            upload_changes.gather_on_device(
                _line(site),
                gather_bytes_per_second=figures.gather,
                making_bytes_per_second=MAKING_BYTES_PER_SECOND,
                waits=waits,
            )
            for waits in (False, True)
        )

    return _with(case, change)


def page_locked(case: Case, site: Site) -> Changes:
    """They are sent out of page-locked memory, without a wait."""
    return _with(case, lambda figures: (upload_changes.copy_faster(_line(site), bytes_per_second=figures.pinned),))


def ahead(case: Case, site: Site) -> Changes:
    """A feed puts batches together and sends them, while the step runs."""
    return sent_ahead(case, _line(site))


def sent_ahead(case: Case, line: int) -> Changes:
    """What this line sends, a feed does."""

    def change(figures: Figures) -> Changes:
        fed = upload_changes.send_ahead(
            line,
            bytes_per_second=figures.pinned,
            producer_bytes_per_second=FEED_BYTES_PER_SECOND,
            making_bytes_per_second=MAKING_BYTES_PER_SECOND,
        )
        return (fed,)

    return _with(case, change)


def converted_ahead(case: Case, site: Site) -> Changes:
    """The threads of tf.data put batches together, as fast as a feed's or as one of NumPy's; what they make lies in
    ordinary memory, and crosses when the step asks for it."""

    def change(figures: Figures) -> Changes:
        return tuple(
            upload_changes.convert_ahead(
                _line(site), making_bytes_per_second=MAKING_BYTES_PER_SECOND, producer_bytes_per_second=speed
            )
            for speed in (FEED_BYTES_PER_SECOND, MAKING_BYTES_PER_SECOND)
        )

    return _with(case, change)


def overlapped(case: Case, line: int) -> Changes:
    """They cross as they do, a step ahead and beside the computing."""
    return _with(case, lambda figures: (upload_changes.overlap_copies(line),))


def narrowed(case: Case, site: Site, share: float) -> Changes:
    """A share of the bytes."""
    return _with(case, lambda figures: (upload_changes.narrow(_line(site), share=share, kind=site.kind.value),))


def narrowed_ahead(case: Case, site: Site, share: float) -> Changes:
    """A share of the bytes, sent by somebody else while the step runs."""
    pairs = zip(narrowed(case, site, share), ahead(case, site), strict=True)
    return tuple(changes.one_after_the_other(pair) for pair in pairs)


def put_together(case: Case, site: Site) -> Changes:
    """One upload in place of many."""

    def change(figures: Figures) -> Changes:
        speeds = {"bytes_per_second": figures.pageable, "host_bytes_per_second": figures.host_copy}
        return (upload_changes.send_together(_line(site), **speeds),)

    return _with(case, change)


def deferred(case: Case, site: Site) -> Changes:
    """Nobody waits."""
    return _with(case, lambda figures: (changes.defer_waits(_line(site)),))


def checked(case: Case, site: Site, *, waits: bool) -> Changes:
    """What is pulled is looked at on the device: what the host does behind it goes too, all of it or less."""

    def change(figures: Figures) -> Changes:
        return tuple(
            check_changes.check_on_device(
                _line(site), bytes_per_second=figures.gather, passes=passes, waits=waits, doubts=doubts
            )
            for passes, doubts in zip(CHECK_PASSES, (False, True), strict=True)
        )

    return _with(case, change)


def spent_behind(case: Case, site: Site) -> tuple[float, float]:
    """Seconds of a step that the host spends on what it pulled, at least and at most, as a share of recorded steps."""
    timeline = build(case) if case.device is not None else None
    if timeline is None or case.device is None or not case.device.seconds:
        return 0.0, 0.0
    least, most = check_changes.spent_behind(timeline, _line(site))
    scale = case.step_seconds / case.device.seconds
    return least * scale, most * scale


def prefetched(case: Case, site: Site, making: float, *, by_processes: bool = True) -> Changes:
    """Batches are made ahead, in so many seconds each; what processes make has to be handed over."""
    handing = site.nbytes / WORKERS_BYTES_PER_SECOND if by_processes else 0.0
    return _with(case, lambda figures: (changes.prefetch_input(producer_seconds=max(making, handing)),))


def made_ahead(case: Case, site: Site, making: float, producers: int) -> Changes:
    """The loop no longer spends so many seconds on making a batch: so many others do, and hand it over."""
    fast = max(making / max(1, producers), site.nbytes / FEED_BYTES_PER_SECOND)
    slow = max(fast, site.nbytes / WORKERS_BYTES_PER_SECOND) if "torch" in case.frameworks else fast
    return _with(
        case,
        lambda figures: tuple(
            upload_changes.make_ahead(_line(site), seconds=making, producer_seconds=producing)
            for producing in dict.fromkeys((fast, slow))
        ),
    )


def removed(case: Case, *sites: Site) -> Changes:
    """These calls are made once, in front of the loop."""
    gone = [changes.remove_calls(_line(site), (site.kind.value,)) for site in sites]
    return _with(case, lambda figures: (changes.one_after_the_other(gone),))


def moved(case: Case, *sites: Site) -> Changes:
    """The operation is placed where its data is, so that none of these moves is left."""
    return _with(case, lambda figures: (changes.move_to_device(*map(_line, sites)),))


def compiled(case: Case, framework: str, *, beside: float = 0.0) -> Changes:
    """The step is one call: a graph of the same operations, or a program whose compiler puts some of them together.
    What is called beside it takes so many seconds as before."""
    if framework in ("tensorflow", "keras"):
        ways = [(each, 1.0, once) for each, once in zip(EXECUTOR_SECONDS, FUNCTION_SECONDS, strict=True)]
    elif framework == "jax":
        ways = [(0.0, share, once) for share, once in zip((FUSED, 1.0), PROGRAM_SECONDS, strict=True)]
    else:
        ways = [(GRAPH_SECONDS, share, 0.0) for share in ((1.0,) if framework == "torch" else (1.0, FUSED))]
    return _with(
        case,
        lambda figures: tuple(
            changes.launch_together(seconds_each=each, device_share=share, seconds_once=once + beside)
            for each, share, once in ways
        ),
    )


def _with(case: Case, change: Callable[[Figures], Changes]) -> Changes:
    return change(figures_for(case)) if case.device is not None else ()


def _line(site: Site) -> int:
    return site.events[0].line if site.events else -1
