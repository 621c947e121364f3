"""The number of Ray workers of one feed, computed without Ray."""

from dataclasses import dataclass

__all__ = ["TASKS_PER_WORKER", "ClusterShare", "share_workers"]

TASKS_PER_WORKER = 2  # one task runs and one is queued, so the worker never waits for the training process
MAX_WORKERS = 128  # each worker needs TASKS_PER_WORKER waiting threads in the training process


@dataclass(frozen=True, slots=True)
class ClusterShare:
    """The workers of one feed, and how rows reach them."""

    workers: int
    why: str  # reason for the number of workers, for `explain()`
    row_delivery: str = "sent"  # "read" by the workers, "stored" in Ray's object store, or "sent" with each task
    row_delivery_why: str = ""  # reason for `row_delivery`, for `explain()`


def share_workers(*, cpus: int, free: int, nodes: int, requested: int | None, shards: int) -> tuple[int, str]:
    """Return how many workers a feed starts, and the reason. Each worker uses one CPU.

    All ranks start at about the same time, and the first one must not take all free CPUs. So each rank takes an equal
    part of all CPUs, or all free CPUs if these are fewer.

    >>> share_workers(cpus=16, free=14, nodes=4, requested=None, shards=2)
    (8, "a rank's part of 16 CPUs on 4 nodes")
    """
    where = f"{nodes} node{'s' if nodes != 1 else ''}"
    if requested is not None:
        return requested, f"as requested, of {cpus} CPUs on {where}"
    if shards > 1:
        return max(1, min(free, cpus // shards, MAX_WORKERS)), f"a rank's part of {cpus} CPUs on {where}"
    return max(1, min(free, MAX_WORKERS)), f"{free} of {cpus} CPUs on {where} are free"
