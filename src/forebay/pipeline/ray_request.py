"""How a pipeline is spread over a Ray cluster: how many workers it takes, and how rows get to them."""

from typing import Any

from forebay.core import registry
from forebay.core.source import Source
from forebay.core.spec import format_nbytes
from forebay.errors import ClusterError, PipelineError
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Demand
from forebay.sources.arrays import ArraySource
from forebay.transforms.ops import Map, Transform
from forebay.transforms.workers.ray_cluster import Cluster, share_workers

__all__ = ["spread"]

STORED_NBYTES = 256 << 20  # every node that works for the feed keeps a copy of them


def spread(pipeline: Pipeline, demand: Demand) -> Cluster | None:
    """The part of a cluster that does the maps which ask for Ray; None where none does."""
    asking = [made for made in demand.transforms if isinstance(made, Map) and made.where == "ray"]
    if not asking:
        return None
    _refuse_processes(demand.transforms, asking[0])
    asked = min((made.workers for made in asking if made.workers is not None), default=None)
    there = registry.ray_connect()()
    free = _beside(pipeline.source, there.cpus, there.free)
    workers, why = share_workers(
        cpus=there.cpus, free=free, nodes=there.nodes, asked=asked, shards=pipeline.shard_count
    )
    if free != there.free and asked is None:
        why = f"half of {there.cpus} CPUs; the Ray Dataset needs the others"
    return Cluster(workers, why, *_rows(pipeline, demand))


def _beside(source: Any, cpus: int, free: int) -> int:
    """CPUs to be had where the rows themselves are made on the cluster: half, or each would wait for the other.

    Of all, not of those free: a dataset that was looked at a moment ago still holds some.
    """
    while hasattr(source, "below"):
        source = source.below
    if not getattr(source, "needs_cluster", False):
        return free
    if cpus < 2:
        raise ClusterError(
            f"a Ray Dataset and map(..., where='ray') need 2 CPUs at least, and the cluster has {cpus}: map in the "
            "dataset (dataset.map_batches), or use where='thread'."
        )
    return cpus // 2


def _refuse_processes(transforms: tuple[Transform, ...], asking: Map) -> None:
    for transform in transforms:
        if transform.where == "process":
            raise PipelineError(
                f"{transform} asks for where='process' and {asking} for where='ray': let both run on Ray, which has "
                "this machine's CPUs too."
            )


def _rows(pipeline: Pipeline, demand: Demand) -> tuple[str, str]:
    """How the workers get their rows, and why so."""
    source = pipeline.source
    if not isinstance(source, Source):
        return "sent", "a stream is read here, in turn"
    if not demand.sized:
        return "sent", "rows are padded here"
    for transform in demand.transforms[: [made.where for made in demand.transforms].index("ray")]:
        if transform.where != "either":
            return "sent", f"{transform} comes first, and runs here"
    if pipeline.opening is not None:
        return "read", "each worker opens the files itself"
    if not isinstance(source, ArraySource):
        return "sent", "only this process can ask the source for them"
    nbytes = sum(array.nbytes for array in source.arrays)
    if nbytes > STORED_NBYTES:
        return "sent", f"{format_nbytes(nbytes)} are too many to keep on every node"
    return (
        "stored",
        f"{format_nbytes(nbytes)}, put into Ray's object store, anew when they change; each node takes a copy",
    )
