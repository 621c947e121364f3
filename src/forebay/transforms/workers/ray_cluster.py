"""What a plan must know of a Ray cluster, and how much of it one feed takes. Pure: Ray is not imported here."""

from dataclasses import dataclass

__all__ = ["TASKS_A_WORKER", "Cluster", "share_workers"]

TASKS_A_WORKER = 2  # one runs, and the next waits there: the trip to the trainer and back costs the worker nothing
MOST_WORKERS = 128  # two threads of the trainer wait for each


@dataclass(frozen=True, slots=True)
class Cluster:
    """The part of a cluster that a feed works with."""

    workers: int
    why: str  # why so many
    rows: str = "sent"  # "read" by the workers, "stored" in Ray's object store, or "sent" with each task
    rows_why: str = ""


def share_workers(*, cpus: int, free: int, nodes: int, asked: int | None, shards: int) -> tuple[int, str]:
    """How many workers, of one CPU each, a feed takes, and why.

    Ranks begin at the same time, so each takes its part of the whole, not of what happens to be free.

    >>> share_workers(cpus=16, free=14, nodes=4, asked=None, shards=2)
    (8, "a rank's part of 16 CPUs on 4 nodes")
    """
    where = f"{nodes} node{'s' if nodes != 1 else ''}"
    if asked is not None:
        return asked, f"as asked, of {cpus} CPUs on {where}"
    if shards > 1:
        return max(1, min(free, cpus // shards, MOST_WORKERS)), f"a rank's part of {cpus} CPUs on {where}"
    return max(1, min(free, MOST_WORKERS)), f"{free} of {cpus} CPUs on {where} are free"
