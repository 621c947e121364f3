"""Feeds that `scale_check.py` measures, each in a process of its own, and what it measures apart from them.

python benchmarks/scale_feeds.py '{"kind": "process", "workers": 2, ...}'     prints what was measured as JSON
"""

import json
import mmap
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import forebay as fb
from forebay.measure.simulate.simulate import WARM_UP

ROW_LOOPS = 2500  # of pure Python for a row
WAIT_SECONDS = 0.004  # of a map that waits, for a batch
UNEVEN = 0.5  # the standard deviation of a map that waits unevenly, as a share of its mean
ROW_NBYTES = 4096
FILE_ROWS, BLOCK_ROWS = 1 << 18, 512
READ_NBYTES, READERS = 1 << 20, 8


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Steps of one feed, and what its plan says."""
    if case["kind"] in ("process", "waiting", "uneven"):  # beside threads, the loop has a core of its own
        cores = case["workers"] + (case["kind"] != "process")
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    slept = lasting(lambda: time.sleep(case["loop_seconds"])) if case["loop_seconds"] else 0.0
    with nodes(case["nodes"], case["workers"]), pipeline(case).feed("numpy", host_bytes=case["host_bytes"]) as feed:
        plan, taken = feed.plan, []
        for _ in feed:
            taken.append(time.perf_counter())
            if case["loop_seconds"]:
                time.sleep(case["loop_seconds"])
    if plan.group_batches > 1:
        raise SystemExit(f"batches go in groups of {plan.group_batches}, which is not what is predicted")
    warm = round(len(taken) * WARM_UP)
    step = (taken[-1] - taken[warm - 1]) / (len(taken) - warm)
    workers = case["nodes"] * case["workers"] or plan.processes or plan.threads
    told = {"slots": plan.slots, "threads": plan.threads, "workers": workers}
    return told | {"step": step, "slept": slept, "waited": lasting(wait)}


@contextmanager
def nodes(count: int, workers: int) -> Iterator[None]:
    """A Ray cluster of so many nodes on this machine; none for 0."""
    if not count:
        yield
        return
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=workers)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def pipeline(case: dict[str, Any]) -> fb.Pipeline:
    kind, batch_rows, steps = case["kind"], case["batch_rows"], case["steps"]
    if kind == "disk":
        forget(Path(case["path"]))
        return fb.from_files(case["path"]).shuffle(seed=0, block=BLOCK_ROWS).batch(batch_rows).take(steps)
    batches = fb.from_arrays(np.zeros((steps * batch_rows, ROW_NBYTES), np.uint8)).batch(batch_rows)
    functions = {"process": work, "ray": work, "ray empty": give_back, "uneven": wait_unevenly}
    where = "ray" if kind.startswith("ray") else "process" if kind == "process" else "thread"
    return batches.map(functions.get(kind, wait_evenly), where=where)


def work(batch: Any) -> Any:
    """Pure Python, so many loops a row."""
    for _ in range(len(batch)):
        total = 0
        for number in range(ROW_LOOPS):
            total += number * number
    return batch


def give_back(batch: Any) -> Any:
    return batch


def wait_evenly(batch: Any) -> Any:
    wait()
    return batch


def wait() -> None:
    time.sleep(WAIT_SECONDS)


_random = np.random.default_rng()


def wait_unevenly(batch: Any) -> Any:
    """Log-normal, as the simulator has it, but drawn by itself."""
    sigma = np.sqrt(np.log1p(UNEVEN**2))
    time.sleep(WAIT_SECONDS * _random.lognormal(-(sigma**2) / 2, sigma))
    return batch


# What is measured apart


def row_seconds(batches: int = 60) -> float:
    """Of the map in a plain loop, in the mean: as in a feed, whatever else runs here slows it too."""
    batch = np.zeros((32, 1), np.uint8)
    began = time.perf_counter()
    for _ in range(batches):
        work(batch)
    return (time.perf_counter() - began) / (batches * len(batch))


def lasting(action: Callable[[], Any]) -> float:
    """Seconds of an action that sleeps: the median of some."""
    found = []
    for _ in range(15):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def disk_speed(path: Path) -> float:
    """Bytes a second to threads of plain reads past the page cache, from front to back."""
    forget(path)
    file, lock = os.open(path, os.O_RDONLY | os.O_DIRECT), threading.Lock()
    offsets = iter(range(0, path.stat().st_size - READ_NBYTES, READ_NBYTES))
    counts: list[int] = []

    def read() -> None:
        buffer = [mmap.mmap(-1, READ_NBYTES)]
        while True:
            with lock:
                offset = next(offsets, None)
            if offset is None:
                return
            counts.append(os.preadv(file, buffer, offset))

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    return sum(counts) / (time.perf_counter() - began)


def write_rows(path: Path) -> None:
    """A file of random rows, on the disk."""
    rows = np.lib.format.open_memmap(path, "w+", np.uint8, (FILE_ROWS, ROW_NBYTES))
    piece = np.random.default_rng(0).integers(0, 256, (1 << 12, ROW_NBYTES), np.uint8)
    for start in range(0, FILE_ROWS, len(piece)):
        rows[start : start + len(piece)] = piece
    rows.flush()


def forget(path: Path) -> None:
    """Have the page cache forget a file."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
