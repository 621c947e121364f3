"""The rank of this process, as its launcher reports it.

The launchers are Ray Train, torchrun, JAX, TensorFlow, MPI and Slurm. This module reads ranks from environment
variables and from frameworks that the script has imported. It imports no framework itself.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from forebay.errors import PipelineError

__all__ = ["LAUNCHERS", "Launcher", "ReportedRank", "detect_process_rank", "lockstep_ranks"]


@dataclass(frozen=True, slots=True)
class ReportedRank:
    """The rank of this process, as one launcher reports it."""

    index: int | None  # None if the process has no rank, such as a parameter server
    count: int | None  # number of ranks; None if the launcher does not report it
    reported_by: str  # name of the launcher or of its environment variables
    has_parameter_servers: bool = False  # whether TensorFlow runs parameter servers


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher and the function that reads its rank."""

    read: Callable[[], ReportedRank | None]  # returns None if the launcher did not start this process
    in_lockstep: bool  # whether its ranks train one model together, step by step


def lockstep_ranks() -> Iterator[ReportedRank]:
    """Yield the reported rank of each launcher whose ranks run in lockstep.

    Skip a launcher that does not report the number of ranks. Raise `PipelineError` if a report is malformed.
    """
    for launcher in LAUNCHERS:
        rank = launcher.read() if launcher.in_lockstep else None
        if rank is not None and rank.count is not None:
            yield rank


def detect_process_rank() -> int | None:
    """Return the rank of this process, or None if no launcher reports one.

    The result is also None if this process is the only rank. If several launchers report a rank, the first of them in
    `LAUNCHERS` is used.

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
            # In a process that is not a worker, older versions of Ray warn once. Then they report no experiment and
            # rank 0 of 1.
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
    return _read_environment("RANK", "WORLD_SIZE")  # torchrun, DeepSpeed, Accelerate


def _read_jax() -> ReportedRank | None:
    """Return the rank from JAX's internal state, because `jax.process_index()` would start a backend."""
    module = sys.modules.get("jax._src.distributed")
    if module is None or module.global_state.client is None:
        return None
    return _report(module.global_state.process_id, module.global_state.num_processes or 1, "jax.distributed")


def _read_tensorflow() -> ReportedRank | None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.distribute.has_strategy():
        resolver = tensorflow.distribute.get_strategy().cluster_resolver
        if resolver is not None:
            cluster = resolver.cluster_spec().as_dict()
            return _report_tensorflow(cluster, resolver.task_type, resolver.task_id, "TensorFlow's strategy")
    config = os.environ.get("TF_CONFIG")
    return _parse_tf_config(config) if config else None


def _parse_tf_config(config: str) -> ReportedRank | None:
    """Parse {"cluster": {"worker": [...]}, "task": {"type": "worker", "index": 0}}."""
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

    Other tasks, such as evaluators and parameter servers, have no rank. For them, the index of the result is None if
    the cluster has parameter servers; otherwise the result itself is None.
    """
    chiefs, workers, has_parameter_servers = cluster.get("chief", ()), cluster.get("worker", ()), "ps" in cluster
    count = len(chiefs) + len(workers)
    if kind not in ("chief", "worker"):
        return ReportedRank(None, count, reported_by, has_parameter_servers) if has_parameter_servers else None
    rank = _report(index, count, reported_by, first=len(chiefs) if kind == "worker" else 0)
    return replace(rank, has_parameter_servers=has_parameter_servers)


def _read_environment(index_variable: str, count_variable: str) -> ReportedRank | None:
    """Return the rank from two environment variables, or None if they contain no rank.

    The variable for the number of ranks may be unset.
    """
    index, count = os.environ.get(index_variable), os.environ.get(count_variable)
    if index is None or (count is None and not index.isdigit()):  # another program may use the variable for other text
        return None
    return _report(index, count, f"{index_variable} and {count_variable}")


def _report(index: Any, count: Any, reported_by: str, *, first: int = 0) -> ReportedRank:
    """Return rank `first + index` of `count`, or raise PipelineError if `index` or `count` is not a number."""
    try:
        return ReportedRank(first + int(index), None if count is None else int(count), reported_by)
    except (TypeError, ValueError) as error:
        raise PipelineError(
            f"{reported_by} reports rank {index!r} of {count!r}, but both must be integers. Correct them, or use "
            "shard(index, count)."
        ) from error


LAUNCHERS = (
    Launcher(_read_ray_train, in_lockstep=True),
    Launcher(_read_torch, in_lockstep=True),
    Launcher(_read_jax, in_lockstep=True),
    Launcher(_read_tensorflow, in_lockstep=True),
    # The launchers below also number processes that do not belong to one training run.
    Launcher(partial(_read_environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), in_lockstep=False),
    Launcher(partial(_read_environment, "PMI_RANK", "PMI_SIZE"), in_lockstep=False),  # MPICH, Intel MPI
    Launcher(partial(_read_environment, "SLURM_PROCID", "SLURM_NTASKS"), in_lockstep=False),
    Launcher(partial(_read_environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE"), in_lockstep=False),
)
