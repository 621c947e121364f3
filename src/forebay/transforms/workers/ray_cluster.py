"""The number of Ray workers of one feed, computed without Ray."""

from dataclasses import dataclass

__all__ = ["TASKS_PER_WORKER", "ClusterShare", "share_workers"]

TASKS_PER_WORKER = 2  # a worker runs one task and queues the next, so it never waits for the training process
MAX_WORKERS = 128  # each worker needs TASKS_PER_WORKER waiting threads in the training process


@dataclass(frozen=True, slots=True)
class ClusterShare:
    """The workers of one feed, and how rows reach them."""

    workers: int
    why: str  # reason for the number of workers, for `explain()`
    row_delivery: str = "sent"  # "read" by the workers, "stored" in Ray's object store, or "sent" with each task
    row_delivery_why: str = ""  # reason for `row_delivery`, for `explain()`


def share_workers(
    *, cpus: int, free: int, nodes: int, requested: int | None, shards: int, dataset_cpus: int = 0
) -> tuple[int, str]:
    """Return how many workers a feed starts, and the reason. Each worker uses one CPU.

    All ranks start at about the same time, and the first rank must not take all free CPUs. So each rank takes an equal
    part of all CPUs, or all free CPUs if these are fewer.

    A Ray Dataset that produces the rows needs `dataset_cpus`. In this case, all other CPUs count as free, because the
    dataset was sampled just before and still occupies some of them.

    >>> share_workers(cpus=16, free=14, nodes=4, requested=None, shards=2)
    (8, "a rank's part of 16 CPUs on 4 nodes")
    """
    cluster = f"{cpus} CPUs on {nodes} node{'s' if nodes != 1 else ''}"
    if requested is not None:
        return requested, f"as requested, of {cluster}"
    if dataset_cpus:
        free = cpus - dataset_cpus
        cluster = f"{free} of {cluster}; the Ray Dataset needs the others"
    part = (cpus - dataset_cpus) // shards
    if shards > 1 and part <= free:
        why = f"a rank's part of {cluster}"
    else:
        why = cluster if dataset_cpus else f"{free} of {cluster} are free"
    workers = max(1, min(part, free))
    if workers > MAX_WORKERS:
        return MAX_WORKERS, f"the most workers of one feed; {why}"
    return workers, why
