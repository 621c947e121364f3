"""The rank of this process, as its launcher reports it.

The launchers are Ray Train, torchrun, JAX, TensorFlow, Horovod, MPI and Slurm. This module reads ranks from environment
variables and from frameworks that the script has imported. It imports no framework itself.

One launcher may start another: Slurm starts torchrun once per node, and torchrun starts the ranks. Both set variables,
but only torchrun knows the rank. So each launcher has a trust level, and Forebay uses the first level with a report.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any

from forebay.errors import PipelineError

__all__ = ["LAUNCHERS", "Launcher", "ReportedRank", "TrustLevel", "detect_process_rank", "lockstep_ranks"]


class TrustLevel(IntEnum):
    """How reliably a launcher knows the rank of this process; 0 is the most reliable."""

    FRAMEWORK = 0  # a framework in which this process has joined the ranks of a training run
    TRAINING = 1  # environment variables of a launcher that starts the ranks of one training run
    CLUSTER = 2  # environment variables of a launcher that may have started the ranks, or only torchrun on each node
    UNCOUNTED = 3  # environment variables without the number of ranks that train together; only the doctor reads them


@dataclass(frozen=True, slots=True)
class ReportedRank:
    """The rank of this process, as one launcher reports it."""

    index: int | None  # None if the process has no rank, such as a parameter server
    count: int | None  # number of ranks; None if the launcher does not report it
    reported_by: str  # name of the launcher or of its environment variables
    has_parameter_servers: bool = False  # whether TensorFlow runs parameter servers


@dataclass(frozen=True, slots=True)
class Launcher:
    """A function that reads the rank from one launcher, and how reliable this rank is."""

    read: Callable[[], ReportedRank | None]  # returns None if the launcher did not start this process
    level: TrustLevel


def lockstep_ranks() -> list[ReportedRank]:
    """Return this process's rank, once for each launcher of the first trust level with reports.

    Ranks in lockstep train one model together, step by step. Reports without the number of ranks do not count. If both
    MPI and Slurm report a rank, return only MPI's. Raise `PipelineError` if a report is malformed.
    """
    for level in (TrustLevel.FRAMEWORK, TrustLevel.TRAINING):
        if reported := list(_read_level(level)):
            return reported
    # A Ray worker inherits the variables of the process that started the Ray cluster. MPI or Slurm has not started this
    # worker.
    if "RAY_RAYLET_PID" in os.environ:
        return []
    return list(_read_level(TrustLevel.CLUSTER))[:1]


def _read_level(level: TrustLevel) -> Iterator[ReportedRank]:
    for launcher in LAUNCHERS:
        rank = launcher.read() if launcher.level == level else None
        if rank is not None and rank.count is not None:
            yield rank


def detect_process_rank() -> int | None:
    """Return the rank of this process, or None if no launcher reports one.

    Return None as well if this process is the only rank. If several launchers report a rank, return that of the first
    launcher in `LAUNCHERS`.

    Call this function after the user's script has run, because some scripts initialise torch.distributed or
    jax.distributed themselves.
    """
    for launcher in LAUNCHERS:
        with suppress(Exception):  # a framework may be half imported, and a variable may not be a number
            rank = launcher.read()
            if rank is not None:
                return None if rank.count == 1 else rank.index  # Slurm gives a rank to a single process too
    return None


def _read_ray_train() -> ReportedRank | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        with warnings.catch_warnings():
            # In a process that is not a worker of Ray Train, older versions of Ray warn at the first call, and report
            # no experiment and rank 0 of 1 at later calls. The filter raises the warning as an exception.
            warnings.filterwarnings("error", ".*only be called inside")
            context = train.get_context()
            if context.get_experiment_name() is None:
                return None
            return _report(context.get_world_rank(), context.get_world_size(), "Ray Train")
    except (RuntimeError, UserWarning):  # this process is not a worker of Ray Train
        return None


def _read_torch() -> ReportedRank | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return _report(distributed.get_rank(), distributed.get_world_size(), "torch.distributed")
    return None


def _read_jax() -> ReportedRank | None:
    """Return the rank from JAX's internal state, because `jax.process_index()` would start a backend."""
    module = sys.modules.get("jax._src.distributed")
    if module is None or module.global_state.client is None:
        return None
    return _report(module.global_state.process_id, module.global_state.num_processes or 1, "jax.distributed")


def _read_tensorflow() -> ReportedRank | None:
    distribute = getattr(sys.modules.get("tensorflow"), "distribute", None)  # missing during TensorFlow's import
    resolver = distribute.get_strategy().cluster_resolver if distribute and distribute.has_strategy() else None
    if resolver is None:
        return None
    cluster = resolver.cluster_spec().as_dict()
    return _report_tensorflow(cluster, resolver.task_type, resolver.task_id, "TensorFlow's strategy")


def _read_tf_config() -> ReportedRank | None:
    """Return the rank from the variable TF_CONFIG.

    Return None if the variable is unset, or if its task has no known type. TF_CONFIG has the form
    {"cluster": {"worker": [...]}, "task": {"type": "worker", "index": 0}}.
    """
    config = os.environ.get("TF_CONFIG")
    if not config:
        return None
    try:
        parsed = json.loads(config)
        cluster = {kind: list(addresses) for kind, addresses in parsed.get("cluster", {}).items()}
        kind, index = parsed.get("task", {}).get("type"), parsed.get("task", {}).get("index", 0)
    except (ValueError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"TF_CONFIG={config[:200]!r} does not describe a cluster and a task. Correct it, or use "
            "shard(index, count)."
        ) from error
    return _report_tensorflow(cluster, kind, index, "TF_CONFIG")


def _report_tensorflow(
    cluster: Mapping[str, Any], kind: str | None, index: Any, reported_by: str
) -> ReportedRank | None:
    """Return the rank of a TensorFlow task: 0 for the chief, then the workers.

    An evaluator works alone, so it is rank 0 of 1. A parameter server has no rank: the `index` of its report is None.
    Return None if the type of the task is unknown.
    """
    chiefs, workers, has_parameter_servers = cluster.get("chief", ()), cluster.get("worker", ()), "ps" in cluster
    count = len(chiefs) + len(workers)
    if kind not in ("chief", "worker"):
        if has_parameter_servers:
            return ReportedRank(None, count, reported_by, has_parameter_servers)
        return ReportedRank(0, 1, reported_by) if kind == "evaluator" else None
    rank = _report(index, count, reported_by, first=len(chiefs) if kind == "worker" else 0)
    return replace(rank, has_parameter_servers=has_parameter_servers)


def _read_environment(index_variable: str, count_variable: str | None) -> ReportedRank | None:
    """Return the rank from environment variables, or None if they contain no rank.

    The variable for the number of ranks may be unset. `count_variable` is None if the launcher has no such variable.
    """
    index, count = os.environ.get(index_variable), os.environ.get(count_variable) if count_variable else None
    if index is None or (count is None and not index.isdecimal()):  # another program may store a text in the variable
        return None
    return _report(index, count, f"{index_variable} and {count_variable}" if count_variable else index_variable)


def _report(index: Any, count: Any, reported_by: str, *, first: int = 0) -> ReportedRank:
    """Return rank `first + index` of `count`.

    Raise PipelineError if a number is no integer, or if the rank is outside of 0 to `count - 1`.
    """
    try:
        rank = ReportedRank(first + int(index), None if count is None else int(count), reported_by)
    except (TypeError, ValueError) as error:
        raise PipelineError(
            f"{reported_by} reports rank {index!r} of {count!r}, but both must be integers. Correct them, or use "
            "shard(index, count)."
        ) from error
    assert rank.index is not None
    if rank.count is not None and not 0 <= rank.index < rank.count:
        raise PipelineError(
            f"{reported_by} reports rank {rank.index} of {rank.count}, but ranks are 0 to {rank.count - 1}. Correct "
            "the rank, or use shard(index, count)."
        )
    return rank


def _read_slurm_step() -> ReportedRank | None:
    """Return the task number in a job step of srun.

    Return None outside of a step: a batch script has SLURM_NTASKS too, but it is a single process.
    """
    return _read_slurm("SLURM_STEP_NUM_TASKS") if "SLURM_STEP_NUM_TASKS" in os.environ else None


def _read_slurm(count_variable: str) -> ReportedRank | None:
    """Return the task number of Slurm; None in the shell of an interactive session.

    In the shell of `srun -n4 --pty bash`, the user starts a single process. Slurm has named this job "bash", and
    `srun --pty` has set SLURM_PTY_PORT. Without this variable, a second `srun` has started tasks inside of the job.
    """
    if os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive") and "SLURM_PTY_PORT" in os.environ:
        return None
    return _read_environment("SLURM_PROCID", count_variable)


LAUNCHERS = (
    Launcher(_read_ray_train, TrustLevel.FRAMEWORK),
    Launcher(_read_torch, TrustLevel.FRAMEWORK),
    Launcher(_read_jax, TrustLevel.FRAMEWORK),
    Launcher(_read_tensorflow, TrustLevel.FRAMEWORK),
    Launcher(partial(_read_environment, "RANK", "WORLD_SIZE"), TrustLevel.TRAINING),  # torchrun, DeepSpeed, Accelerate
    Launcher(partial(_read_environment, "HOROVOD_RANK", "HOROVOD_SIZE"), TrustLevel.TRAINING),
    Launcher(_read_tf_config, TrustLevel.TRAINING),
    Launcher(partial(_read_environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), TrustLevel.CLUSTER),
    Launcher(partial(_read_environment, "PMI_RANK", "PMI_SIZE"), TrustLevel.CLUSTER),  # MPICH, Intel MPI
    Launcher(partial(_read_environment, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"), TrustLevel.CLUSTER),  # MVAPICH
    Launcher(partial(_read_environment, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"), TrustLevel.CLUSTER),  # jsrun
    Launcher(_read_slurm_step, TrustLevel.CLUSTER),
    Launcher(partial(_read_slurm, "SLURM_NTASKS"), TrustLevel.UNCOUNTED),
    Launcher(partial(_read_environment, "PMIX_RANK", None), TrustLevel.UNCOUNTED),
    Launcher(partial(_read_environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE"), TrustLevel.UNCOUNTED),
)
