"""Which rank of how many this process is, as whatever runs it says: Ray Train, torch, jax or TensorFlow.

Nothing is imported for it: a framework that has not been imported has not started any ranks, and what launchers say is
in the environment. All that say something must say the same.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.core.decision import Reason
from forebay.errors import PipelineError
from forebay.order.schedule import Schedule

__all__ = ["Rank", "check_steps", "describe_rank", "read_rank"]


@dataclass(frozen=True, slots=True)
class Rank:
    """This process among those that train together."""

    index: int
    count: int
    told_by: str  # "" where nobody told: then it is the only one

    def __str__(self) -> str:
        return f"{self.index} of {self.count}"


def read_rank() -> Rank:
    """The rank that everything agrees upon which knows one; the only one where nothing does."""
    told = [rank for rank in (read() for read in _READERS) if rank is not None]
    if len({(rank.index, rank.count) for rank in told}) > 1:
        raise PipelineError(
            f"shard('auto') was told different ranks: {', '.join(f'{rank} by {rank.told_by}' for rank in told)}. "
            "Unset what does not belong to this run, or say it yourself: shard(index, count)."
        )
    if not told:
        return Rank(0, 1, "")
    return Rank(told[0].index, told[0].count, " and ".join(rank.told_by for rank in told))


def check_steps(rank: Rank, schedule: Schedule, position: int) -> None:
    """Refuse an epoch in which some ranks would take a step less: the others would wait for them for ever."""
    idle = schedule.idle_shards(position)
    if idle == 0:
        return
    left = schedule.pass_rows - position
    raise PipelineError(
        f"{left} rows from position {position} on, over {rank.count} ranks in batches of {schedule.batch_rows}: in the "
        f"last step {idle} ranks would have no row, and the others would wait for them. Leave that step out by "
        "batch(..., drop_remainder=True), or choose larger batches or fewer ranks."
    )


def describe_rank(rank: Rank, schedule: Schedule) -> Reason:
    """What `explain()` says of it."""
    if not rank.told_by:
        why = "Ray Train, torch.distributed, jax.distributed and TF_CONFIG say nothing of ranks: one shard"
        return Reason("rank", "the only one", why)
    left_out = "a last step that is not whole is left out" if schedule.drop_remainder else "every row comes once"
    return Reason("rank", str(rank), f"told by {rank.told_by}; all ranks take the same number of steps, {left_out}")


def _ray_train() -> Rank | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*only be called inside")  # where older versions say 0 of 1 to anybody
            context = train.get_context()
            return _rank(context.get_world_rank(), context.get_world_size(), "Ray Train")
    except (RuntimeError, UserWarning):  # not one of its workers
        return None


def _torch() -> Rank | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return _rank(distributed.get_rank(), distributed.get_world_size(), "torch.distributed")
    index, count = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if index is None or count is None:
        return None
    return _rank(index, count, "RANK and WORLD_SIZE")


def _jax() -> Rank | None:
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    is_initialized = getattr(jax.distributed, "is_initialized", None)  # older versions only say 0 of 1
    if is_initialized is not None and not is_initialized():
        return None
    return _rank(jax.process_index(), jax.process_count(), "jax.distributed")


def _tensorflow() -> Rank | None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.distribute.has_strategy():
        resolver = tensorflow.distribute.get_strategy().cluster_resolver
        if resolver is not None:
            cluster = resolver.cluster_spec().as_dict()
            return _worker(cluster, resolver.task_type, resolver.task_id, "TensorFlow's strategy")
    config = os.environ.get("TF_CONFIG")
    return None if not config else _configured(config)


def _configured(config: str) -> Rank | None:
    """What TF_CONFIG says: {"cluster": {"worker": [...]}, "task": {"type": "worker", "index": 0}}."""
    try:
        told = json.loads(config)
        cluster = {kind: list(addresses) for kind, addresses in told.get("cluster", {}).items()}
        kind, index = told.get("task", {}).get("type"), told.get("task", {}).get("index", 0)
    except (ValueError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"TF_CONFIG={config[:200]!r} does not describe a cluster and a task. Mend it, or say shard(index, count)."
        ) from error
    return _worker(cluster, kind, index, "TF_CONFIG")


def _worker(cluster: Mapping[str, Any], kind: str | None, index: Any, told_by: str) -> Rank | None:
    """A chief is the first of the workers; an evaluator is none of them."""
    if "ps" in cluster:
        raise PipelineError(
            f"{told_by} describes a cluster with parameter servers, where TensorFlow hands out the work: "
            "shard('auto') is for workers in step. Say shard(index, count)."
        )
    chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
    if kind not in ("chief", "worker"):
        return None
    return _rank(index, chiefs + workers, told_by, before=chiefs if kind == "worker" else 0)


def _rank(index: Any, count: Any, told_by: str, *, before: int = 0) -> Rank:
    try:
        rank = Rank(before + int(index), int(count), told_by)
    except (TypeError, ValueError) as error:
        raise PipelineError(
            f"shard('auto') was told rank {index!r} of {count!r} by {told_by}: not numbers. Say shard(index, count)."
        ) from error
    if not 0 <= rank.index < rank.count:
        raise PipelineError(f"shard('auto') was told rank {rank} by {told_by}: the first rank is 0. Mend it there.")
    return rank


_READERS: tuple[Callable[[], Rank | None], ...] = (_ray_train, _torch, _jax, _tensorflow)
