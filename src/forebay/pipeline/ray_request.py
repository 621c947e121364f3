"""The Ray part of a request: number of Ray workers, and how rows reach them."""

from forebay.core.source import AbstractSource, AbstractStream, PipelineInput
from forebay.core.spec import format_nbytes
from forebay.errors import ClusterError, FrameworkError, PipelineError
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.arrays import ArraySource
from forebay.transforms.ops import Map, Transform
from forebay.transforms.workers.ray_cluster import ClusterShare, share_workers

__all__ = ["plan_ray_workers"]

# Bytes of the largest arrays that Forebay puts into Ray's object store. Every node with workers of the feed has a copy.
MAX_STORED_NBYTES = 256 << 20


def plan_ray_workers(pipeline: Pipeline, transforms: tuple[Transform, ...], *, fixed_size: bool) -> ClusterShare | None:
    """Connect to Ray, and choose the number of workers and how rows reach them.

    Return None if no map has where="ray". `fixed_size` says that all batches have the same known size.
    """
    ray_maps = [transform for transform in transforms if isinstance(transform, Map) and transform.where == "ray"]
    if not ray_maps:
        return None
    _refuse_processes(transforms, ray_maps[0])
    try:
        from forebay.transforms.workers.ray_connection import connect
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise FrameworkError(
            "map(..., where='ray') needs Ray, which is not installed. Run pip install 'forebay[ray]'.", name="ray"
        ) from error
    requested = min((ray_map.workers for ray_map in ray_maps if ray_map.workers is not None), default=None)
    resources = connect()
    workers, why = share_workers(
        cpus=resources.cpus,
        free=resources.free_cpus,
        nodes=resources.nodes,
        requested=requested,
        shards=pipeline.shard_count,
        dataset_cpus=_dataset_cpus(pipeline.source, resources.cpus),
    )
    return ClusterShare(workers, why, *_row_delivery(pipeline, transforms, fixed_size=fixed_size))


def _refuse_processes(transforms: tuple[Transform, ...], ray_map: Map) -> None:
    for transform in transforms:
        if transform.where == "process":
            raise PipelineError(
                f"{transform} has where='process' and {ray_map} has where='ray', but one feed cannot use both. Set "
                "where='ray' for both maps. Ray can use the CPUs of this machine too."
            )


def _dataset_cpus(source: PipelineInput, cpus: int) -> int:
    """Return the number of CPUs that the maps must leave for a Ray Dataset.

    If a Ray Dataset produces the rows, this is half of all CPUs. If the maps took all CPUs, the dataset and the maps
    would wait for each other forever. Return 0 if no Ray Dataset produces the rows.
    """
    while isinstance(source, AbstractStream) and source.inner is not None:
        source = source.inner
    if not source.needs_cluster:
        return 0
    if cpus < 2:
        raise ClusterError(
            f"a Ray Dataset with map(..., where='ray') needs at least 2 CPUs, but the cluster has {cpus}. Map in the "
            "dataset (dataset.map_batches), or use where='thread'."
        )
    return cpus - cpus // 2


def _row_delivery(pipeline: Pipeline, transforms: tuple[Transform, ...], *, fixed_size: bool) -> tuple[str, str]:
    """Return how the workers receive rows, and why: "read", "stored" or "sent".

    "read": each worker reads the files. "stored": the workers read arrays from Ray's object store. "sent": this process
    sends the rows with each task.
    """
    source = pipeline.source
    if not isinstance(source, AbstractSource):
        return "sent", "this process reads the stream"
    if not fixed_size:
        return "sent", "this process pads the rows"
    ray_map_index = [transform.where for transform in transforms].index("ray")
    for transform in transforms[:ray_map_index]:
        if transform.where != "either":
            return "sent", f"{transform} runs in this process, before the map on Ray"
    if pipeline.file_recipe is not None:
        return "read", "each worker opens the files itself"
    if not isinstance(source, ArraySource):
        return "sent", "only this process can read the source"
    nbytes = sum(array.nbytes for array in source.arrays)
    if nbytes > MAX_STORED_NBYTES:
        return "sent", f"{format_nbytes(nbytes)} are too much to store on every node"
    return (
        "stored",
        f"{format_nbytes(nbytes)} in Ray's object store, one copy per node; stored again if an array changes",
    )
