"""The rule for too many threads, or launches that wait for the device."""

from collections.abc import Iterator
from typing import Any

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import step_framework
from forebay.doctor.model.events import EventKind
from forebay.doctor.predict.cure_changes import launch_without_waiting, shorten_input
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_bound import MODERATE
from forebay.doctor.rules.input_producers import count_cores, count_workers
from forebay.doctor.rules.precedence import RuleView

__all__ = ["examine", "recognises"]

MANY_THREADS_PER_CORE = 2  # threads of all workers per core; the rule does not report fewer
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # environment variables: the number of threads per worker


def recognises(view: CaptureView, site: CallSite) -> bool:
    """Whether too many threads explain the wait at a call site."""
    waits = cost_of(view, site.events) >= MODERATE * view.step_seconds > 0
    return waits and _count_threads(view, site) >= MANY_THREADS_PER_CORE * count_cores(view)


def examine(view: RuleView) -> Iterator[Finding]:
    """Yield one finding per call site with too many threads, and one for blocking launches."""
    if not view.step_seconds:
        return
    for site in view.sites_for("threads", EventKind.INPUT):
        yield _threads_finding(view, site)
    if _settings(view).get("CUDA_LAUNCH_BLOCKING") == "1" and view.has_gpu:
        yield _blocking_finding(view)


def _settings(view: CaptureView) -> dict[str, Any]:
    """Return the environment variables that the capture recorded."""
    settings: dict[str, Any] = view.capture.facts.get("settings") or {}
    return settings


def _count_threads(view: CaptureView, site: CallSite) -> int:
    """Return the number of threads of all workers. Without a setting, each worker has one."""
    values = [value for name in _THREAD_SETTINGS if str(value := _settings(view).get(name, "")).isdigit()]
    return count_workers(site) * max((int(value) for value in values), default=1)


def _threads_finding(view: CaptureView, site: CallSite) -> Finding:
    """Build the finding for workers with many more threads than cores."""
    wait, threads, cores = cost_of(view, site.events), _count_threads(view, site), count_cores(view)
    workers = count_workers(site)
    return Finding(
        rule="threads",
        title=f"{workers} workers use {threads} threads on {cores} cores",
        line=site.line,
        seconds=wait,
        cures=(
            Cure(
                "use one thread per worker, and no more workers than cores",
                _threads_code(view, min(workers, cores)),
                basis=f"the cure saves at most {threads - cores}/{threads} of the wait, because {threads - cores} "
                "threads have no core of their own; the cost of too many threads was not measured",
                changes=shorten_input(view, cores / threads),
            ),
        ),
        evidence=(
            "The environment sets "
            f"{', '.join(f'{name}={value}' for name, value in sorted(_settings(view).items())) or 'no thread counts'}.",
        ),
    )


def _threads_code(view: CaptureView, workers: int) -> str:
    """Return the command that gives each worker one thread.

    The variables must be set before Python starts, because libraries read them when they are imported. They also limit
    the threads of the training on the CPU. DataLoader calls `torch.set_num_threads(1)` in each worker process.
    """
    lines = [
        f"OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python train.py   # num_workers={workers}",
        "# in train.py: remove the lines that set these variables in os.environ",
    ]
    if not view.has_gpu and step_framework(view) == "torch":
        lines += [f"torch.set_num_threads({count_cores(view)})   # the training itself still uses all cores"]
    return "\n".join(lines)


def _blocking_finding(view: CaptureView) -> Finding:
    """Build the finding for blocking launches.

    If host and device work in parallel, a step still takes at least half of its present time.
    """
    most = view.step_seconds / 2
    basis = "the cure saves at most half of a step, because host and device then work in parallel"
    code = "unset CUDA_LAUNCH_BLOCKING   # this setting is for debugging"
    cure = Cure("launch without waiting", code, basis, launch_without_waiting(view))
    title = "CUDA_LAUNCH_BLOCKING=1 makes every launch wait for the device, which costs up to half of a step"
    return Finding("threads", title, None, most, (cure,), ("The doctor read this setting from the environment.",))
