"""The share of a Ray cluster that one feed takes, computed without Ray."""

from dataclasses import dataclass

__all__ = ["TASKS_PER_WORKER", "ClusterShare", "share_workers"]

TASKS_PER_WORKER = 2  # one runs and one is queued, so the worker never waits for the training process
MAX_WORKERS = 128  # each worker needs two waiting threads in the training process (TASKS_PER_WORKER)


@dataclass(frozen=True, slots=True)
class ClusterShare:
    """The workers of one feed, and how rows reach them."""

    workers: int
    why: str  # reason for the number of workers, for `explain()`
    row_delivery: str = "sent"  # "read" by the workers, "stored" in Ray's object store, or "sent" with each task
    row_delivery_why: str = ""


def share_workers(*, cpus: int, free: int, nodes: int, asked: int | None, shards: int) -> tuple[int, str]:
    """Return how many workers of one CPU each a feed takes, and the reason.

    All ranks start at the same time. Each rank therefore takes its part of all CPUs, not of the CPUs free at that
    moment.

    >>> share_workers(cpus=16, free=14, nodes=4, asked=None, shards=2)
    (8, "a rank's part of 16 CPUs on 4 nodes")
    """
    where = f"{nodes} node{'s' if nodes != 1 else ''}"
    if asked is not None:
        return asked, f"as requested, of {cpus} CPUs on {where}"
    if shards > 1:
        return max(1, min(free, cpus // shards, MAX_WORKERS)), f"a rank's part of {cpus} CPUs on {where}"
    return max(1, min(free, MAX_WORKERS)), f"{free} of {cpus} CPUs on {where} are free"
