"""Settings that fight the program: more threads than cores, launches that wait, compiling switched off."""

from collections.abc import Iterator
from typing import Any

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of, unexplained
from forebay.doctor.model.events import Kind
from forebay.doctor.rules.eager import calling, operations
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.input_bound import MODERATE
from forebay.doctor.rules.input_producers import cores_of, workers_of
from forebay.doctor.rules.precedence import charged

__all__ = ["examine", "recognises"]

CROWDED = 2  # threads for each core that want to run
_PER_WORKER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# A setting of a framework that makes compiled functions run operation by operation, and how to take it back.
_UNCOMPILED = {
    "run_eagerly": ("tf.config.run_functions_eagerly(True)", "tf.config.run_functions_eagerly(False)"),
    "jit_disabled": ("jax_disable_jit", 'jax.config.update("jax_disable_jit", False)   # and unset JAX_DISABLE_JIT'),
}


def recognises(case: Case, site: Site) -> bool:
    if site.kind is Kind.OPS:
        return any(facts.get(name) for facts in case.frameworks.values() for name in _UNCOMPILED)
    waits = cost_of(case, site.events) >= MODERATE * case.step_seconds > 0
    return waits and _wanted(case, site) >= CROWDED * cores_of(case)


def examine(case: Case) -> Iterator[Finding]:
    if not case.step_seconds:
        return
    for site in charged(case, "threads", Kind.INPUT):
        yield _crowded(case, site)
    if _settings(case).get("CUDA_LAUNCH_BLOCKING") == "1" and case.has_gpu:
        yield _blocking(case)
    for facts in case.frameworks.values():
        for name in _UNCOMPILED:
            if facts.get(name):
                yield _uncompiled(case, name)


def _settings(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = case.capture.facts.get("settings") or {}
    return found


def _wanted(case: Case, site: Site) -> int:
    """Threads that want to run at a time, as far as settings say: each worker has its own."""
    asked = [value for name in _PER_WORKER if str(value := _settings(case).get(name, "")).isdigit()]
    return workers_of(site) * max((int(value) for value in asked), default=1)


def _crowded(case: Case, site: Site) -> Finding:
    wait, wanted, cores = cost_of(case, site.events), _wanted(case, site), cores_of(case)
    workers = workers_of(site)
    high = wait * (1 - cores / wanted)
    return Finding(
        rule="threads",
        title=f"{workers} workers want {wanted} threads on {cores} cores",
        line=site.line,
        seconds=wait,
        cures=(
            Cure(
                "a thread each, and no more workers than cores",
                f"OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python train.py   # num_workers={min(workers, cores)}",
                low=0.0,
                high=high,
                how="at most the wait in the proportion of threads to cores: what crowding costs was not measured",
            ),
        ),
        evidence=(", ".join(f"{name}={value}" for name, value in sorted(_settings(case).items())) or "no settings",),
    )


def _uncounted(case: Case) -> float:
    """Seconds that may all be Python's: functions of JAX's that are told to run uncompiled still look compiled."""
    runs = [event for site in case.of(Kind.RUN) for event in site.events]
    return min(case.step_seconds, unexplained(case) + cost_of(case, runs))


def _blocking(case: Case) -> Finding:
    """Host and device take turns: side by side they need at least half the time."""
    most = case.step_seconds / 2
    how = "nothing to half of a step: host and device then work side by side"
    cure = Cure("launch without waiting", "unset CUDA_LAUNCH_BLOCKING   # it is for debugging", 0.0, most, how)
    title = "CUDA_LAUNCH_BLOCKING=1 makes every launch wait until the device is done: up to half of a step"
    return Finding("threads", title, None, most, (cure,), ("read from the environment",))


def _uncompiled(case: Case, name: str) -> Finding:
    setting, code = _UNCOMPILED[name]
    sites = charged(case, "threads", Kind.OPS)
    count = sum(map(operations, sites))
    least, high = calling(case, sites) if sites else (0.0, _uncounted(case))
    counted = f"{count:.0f} calls become one" if sites else "what of a step nothing else explains"
    cure = Cure("let functions be compiled", code, least / 2, high, f"{counted}; at least half of what calls take")
    title = f"{setting} runs every operation of compiled functions one by one"
    line = max(sites, key=operations).line if sites else None
    return Finding("threads", title, line, high, (cure,), ("read from the framework",))
