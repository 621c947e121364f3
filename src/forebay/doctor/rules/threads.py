"""Harmful settings: more threads than cores, blocking launches, or disabled compilation."""

from collections.abc import Iterator
from typing import Any

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, unexplained_seconds
from forebay.doctor.model.events import EventKind
from forebay.doctor.rules.eager import calling_seconds, operations_per_step
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_bound import MODERATE
from forebay.doctor.rules.input_producers import count_cores, count_workers
from forebay.doctor.rules.precedence import sites_for

__all__ = ["examine", "recognises"]

CROWDED = 2  # runnable threads per core
_PER_WORKER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Framework settings that run compiled functions operation by operation, and the code to undo each.
_UNCOMPILED = {
    "run_eagerly": ("tf.config.run_functions_eagerly(True)", "tf.config.run_functions_eagerly(False)"),
    "jit_disabled": ("jax_disable_jit", 'jax.config.update("jax_disable_jit", False)   # and unset JAX_DISABLE_JIT'),
}


def recognises(view: CaptureView, site: CallSite) -> bool:
    if site.kind is EventKind.OPS:
        return any(facts.get(name) for facts in view.frameworks.values() for name in _UNCOMPILED)
    waits = cost_of(view, site.events) >= MODERATE * view.step_seconds > 0
    return waits and _count_threads(view, site) >= CROWDED * count_cores(view)


def examine(view: CaptureView) -> Iterator[Finding]:
    if not view.step_seconds:
        return
    for site in sites_for(view, "threads", EventKind.INPUT):
        yield _crowded(view, site)
    if _settings(view).get("CUDA_LAUNCH_BLOCKING") == "1" and view.has_gpu:
        yield _blocking(view)
    for facts in view.frameworks.values():
        for name in _UNCOMPILED:
            if facts.get(name):
                yield _uncompiled(view, name)


def _settings(view: CaptureView) -> dict[str, Any]:
    found: dict[str, Any] = view.capture.facts.get("settings") or {}
    return found


def _count_threads(view: CaptureView, site: CallSite) -> int:
    """Return the number of runnable threads according to the settings; each worker has its own."""
    asked = [value for name in _PER_WORKER if str(value := _settings(view).get(name, "")).isdigit()]
    return count_workers(site) * max((int(value) for value in asked), default=1)


def _crowded(view: CaptureView, site: CallSite) -> Finding:
    wait, threads, cores = cost_of(view, site.events), _count_threads(view, site), count_cores(view)
    workers = count_workers(site)
    high = wait * (1 - cores / threads)
    return Finding(
        rule="threads",
        title=f"{workers} workers use {threads} threads on {cores} cores",
        line=site.line,
        seconds=wait,
        cures=(
            Cure(
                "one thread per worker, and no more workers than cores",
                f"OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python train.py   # num_workers={min(workers, cores)}",
                low=0.0,
                high=high,
                basis="at most the wait, reduced by the ratio of cores to threads; the "
                "cost of too many threads was not measured",
            ),
        ),
        evidence=(
            ", ".join(f"{name}={value}" for name, value in sorted(_settings(view).items())) or "No settings are known.",
        ),
    )


def _uncounted(view: CaptureView) -> float:
    """Return the seconds that may be Python time.

    This includes compiled calls: with compilation disabled, JAX functions are still recorded as compiled calls.
    """
    runs = [event for site in view.sites_of(EventKind.RUN) for event in site.events]
    return min(view.step_seconds, unexplained_seconds(view) + cost_of(view, runs))


def _blocking(view: CaptureView) -> Finding:
    """Build the finding for blocking launches. Host and device in parallel need at least half the time."""
    most = view.step_seconds / 2
    basis = "nothing to half of a step, because host and device then work in parallel"
    cure = Cure(
        "launch without waiting", "unset CUDA_LAUNCH_BLOCKING   # this setting is for debugging", 0.0, most, basis
    )
    title = "CUDA_LAUNCH_BLOCKING=1 makes every launch wait for the device (up to half of a step)"
    return Finding("threads", title, None, most, (cure,), ("The doctor read this setting from the environment.",))


def _uncompiled(view: CaptureView, name: str) -> Finding:
    setting, code = _UNCOMPILED[name]
    sites = sites_for(view, "threads", EventKind.OPS)
    count = sum(map(operations_per_step, sites))
    least, high = calling_seconds(view, sites) if sites else (0.0, _uncounted(view))
    saved = f"{count:.0f} calls become one" if sites else "the time that nothing else explains"
    cure = Cure("enable compilation", code, least / 2, high, f"{saved}; at least half of the time of the calls")
    title = f"{setting} runs every operation of compiled functions one by one"
    line = max(sites, key=operations_per_step).line if sites else None
    return Finding("threads", title, line, high, (cure,), ("The doctor read this setting from the framework.",))
