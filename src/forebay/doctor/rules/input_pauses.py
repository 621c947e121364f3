"""Causes and cures of rare long steps that wait for a DataLoader.

Either its workers start again, or some batches take long to make.
"""

from collections.abc import Iterator
from math import ceil

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.pauses import Pause
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.predict import call_changes
from forebay.doctor.predict.cure_changes import shorten_run
from forebay.doctor.rules.avoidable_calls import AvoidableCall
from forebay.doctor.rules.finding import Cure
from forebay.doctor.rules.fitted_code import fit_loader
from forebay.doctor.rules.input_producers import batches_of_epoch, count_workers, loader_line
from forebay.doctor.rules.wording import location, nbytes_per_call

__all__ = ["INPUT", "RESTART", "SLOW_BATCHES", "input_cures", "input_evidence", "input_kind"]

_NAMES = ("torch.utils.data.dataloader.", "multiprocessing.")
INPUT = AvoidableCall("waits for batches", _NAMES, "", "")  # any such wait; `input_kind` returns its cause
RESTART = AvoidableCall(
    "waits for workers that start again",
    _NAMES,
    "keep the workers between epochs",
    "loader = DataLoader(..., persistent_workers=True)",
)
SLOW_BATCHES = AvoidableCall("waits for batches that take long to make", _NAMES, "make the slow rows faster", "")
# Functions that only run when a loop begins or ends an epoch.
_EPOCH_FUNCTIONS = (
    "torch.utils.data.dataloader.DataLoader.__iter__",
    "torch.utils.data.dataloader.DataLoader._get_iterator",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__init__",
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter._shutdown_workers",
    "multiprocessing.process.BaseProcess.start",
)
DEFAULT_PREFETCH = 2  # batches per worker of a DataLoader
MAX_AHEAD = 64  # batches that all workers together prefetch with a cure
MAX_AHEAD_NBYTES = 1 << 30  # bytes of these batches


def input_kind(view: CaptureView, pause: Pause) -> AvoidableCall:
    """Return why long steps wait for a DataLoader.

    The workers start again if a loader does not keep them, if the long steps call functions that begin an epoch, and if
    there are not more long steps than epochs.
    """
    settings = [each for each in _loader_settings(view) if each.get("workers")]
    restarts = any(not each.get("persistent") for each in settings)
    is_restart = restarts and _begins_epoch(view, pause) and pause.count <= _epochs(view) + 1
    return RESTART if is_restart else SLOW_BATCHES


def input_evidence(view: CaptureView, kind: AvoidableCall | None) -> Iterator[str]:
    """Yield a sentence about the function and the processes that make slow rows."""
    if kind is not SLOW_BATCHES:
        return
    line, workers = _row_line(view), any(each.get("workers") for each in _loader_settings(view))
    makers = "The worker processes make" if workers else "The loop makes"
    if line is not None:
        yield f"{makers} the rows in {location(view, line, '')} ({line.function})."


def input_cures(view: CaptureView, pause: Pause, kind: AvoidableCall, seconds: float) -> Iterator[Cure]:
    """Yield the cures of long steps that wait for a DataLoader.

    The cures save at most `seconds` per step of the run.
    """
    site = next((site for site in view.sites_of(EventKind.INPUT) if site.api == "DataLoader"), None)
    line = loader_line(view, site) if site is not None else None
    if kind is RESTART:
        code = fit_loader(view, line, persistent_workers="True") or kind.code
        basis = "the workers start once; the first batch of an epoch may still take longer than the others"
        yield Cure(kind.cure, code, basis, shorten_run(view, seconds))
        return
    ahead = _batches_ahead(pause, site) if site is not None else 0
    unchanged = call_changes.unchanged
    if ahead:
        code = fit_loader(view, line, prefetch_factor=str(ahead))
        basis = "prefetched batches hide a slow one, if the workers make the others faster than the loop needs them"
        code = code or f"loader = DataLoader(..., prefetch_factor={ahead})"
        yield Cure("let the workers prefetch more batches", code, basis, (*shorten_run(view, seconds), unchanged))
    row = _row_line(view)
    where = f" {row.function} ({location(view, row, '')})" if row is not None else " the code of a row"
    code = f"# find the rows that take long in{where}: measure each call with time.perf_counter()"
    basis = "how much faster these rows can be was not measured; the cure saves at most their additional time"
    yield Cure(kind.cure, code, basis, (*shorten_run(view, seconds), unchanged))


def _loader_settings(view: CaptureView) -> list[dict[str, object]]:
    """Return the settings of each DataLoader of the script."""
    builds = (event.detail or {} for event in view.events_of(EventKind.BUILD) if "DataLoader" in event.api)
    return [detail for detail in builds if "workers" in detail]


def _begins_epoch(view: CaptureView, pause: Pause) -> bool:
    frames = view.capture.history.frames if view.capture.history else ()
    functions = {frames[index].function for line in pause.lines for index, _ in line.shares}
    return not functions.isdisjoint(_EPOCH_FUNCTIONS)


def _epochs(view: CaptureView) -> float:
    """Return the number of epochs in the unprofiled steps; infinity if it is unknown."""
    batches = [batches_of_epoch(view, site) for site in view.sites_of(EventKind.INPUT)]
    shortest, history = min(filter(None, batches), default=0.0), view.capture.history
    return history.steps / shortest if history is not None and shortest else float("inf")


def _row_line(view: CaptureView) -> Line | None:
    """Return the first line of the user's function that makes rows; None if unknown."""
    indices = (detail.get("rows_at", -1) for detail in _loader_settings(view))
    return next((line for index in indices if isinstance(index, int) and (line := view.line(index))), None)


def _batches_ahead(pause: Pause, site: CallSite) -> int:
    """Return how many batches each worker must prefetch to hide a slow batch.

    While a worker makes the slow batch, the loop takes the prefetched batches. The result is 0 if the present number is
    enough, if the batches would take too much memory, or if the workers are too slow on average.
    """
    workers, usual = count_workers(site), pause.usual_seconds
    if not workers or not usual or pause.seconds_per_step >= usual * workers:  # the workers are too slow on average
        return 0
    ahead = ceil((1 + (pause.seconds - usual) / usual) / workers)
    now = max((int(each) for each in site.values("prefetch") if isinstance(each, int)), default=DEFAULT_PREFETCH)
    is_small = workers * ahead <= MAX_AHEAD and workers * ahead * nbytes_per_call(site) <= MAX_AHEAD_NBYTES
    return ahead if is_small and ahead > now else 0
