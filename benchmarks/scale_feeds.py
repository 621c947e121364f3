"""The feeds that `scale_check.py` measures, and its measurements without a feed.

`scale_check.py` starts this script once per case, with the case as JSON. The script prints its measurements as JSON.
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

ROW_LOOPS = 2500  # iterations of the Python loop per row
WAIT_SECONDS = 0.004  # time per batch of a map that waits
WAIT_JITTER = 0.5  # standard deviation of the wait of the uneven map, as a share of its mean
ROW_NBYTES = 4096
FILE_ROWS = 1 << 18
BLOCK_ROWS = 512  # rows per block of the shuffle
READ_NBYTES = 1 << 20  # bytes per read of the disk measurement
READERS = 8  # threads of the disk measurement


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Measure a feed.

    Return the seconds per step ("step") and slots, threads and workers of its plan.

    "slept" is the measured sleep of the training loop, and "waited" that of a map that waits evenly.
    """
    if case["kind"] in ("process", "waiting", "uneven"):  # one core per worker; with threads, one more for the loop
        cores = case["workers"] + (case["kind"] != "process")
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    slept = measure_sleep(lambda: time.sleep(case["loop_seconds"])) if case["loop_seconds"] else 0.0
    with (
        ray_nodes(case["nodes"], case["workers"]),
        make_pipeline(case).feed("numpy", host_bytes=case["host_bytes"]) as feed,
    ):
        plan, batch_times = feed.plan, []
        for _ in feed:
            batch_times.append(time.perf_counter())
            if case["loop_seconds"]:
                time.sleep(case["loop_seconds"])
    if plan.group_batches > 1:
        raise SystemExit(
            f"the plan has groups of {plan.group_batches} batches, but the prediction needs 1. Use larger batches."
        )
    warm_up = round(len(batch_times) * WARM_UP)
    step = (batch_times[-1] - batch_times[warm_up - 1]) / (len(batch_times) - warm_up)
    workers = case["nodes"] * case["workers"] or plan.processes or plan.threads
    planned = {"slots": plan.slots, "threads": plan.threads, "workers": workers}
    return planned | {"step": step, "slept": slept, "waited": measure_sleep(wait)}


@contextmanager
def ray_nodes(count: int, workers: int) -> Iterator[None]:
    """Run a Ray cluster with `count` nodes on this machine; do nothing for 0."""
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


def make_pipeline(case: dict[str, Any]) -> fb.Pipeline:
    kind, batch_rows, steps = case["kind"], case["batch_rows"], case["steps"]
    if kind == "disk":
        drop_from_page_cache(Path(case["path"]))
        return fb.from_files(case["path"]).shuffle(seed=0, block=BLOCK_ROWS).batch(batch_rows).take(steps)
    batches = fb.from_arrays(np.zeros((steps * batch_rows, ROW_NBYTES), np.uint8)).batch(batch_rows)
    functions = {
        "process": run_python_loops,
        "ray": run_python_loops,
        "ray empty": return_batch,
        "uneven": wait_unevenly,
    }
    where = "ray" if kind.startswith("ray") else "process" if kind == "process" else "thread"
    return batches.map(functions.get(kind, wait_evenly), where=where)


def run_python_loops(batch: Any) -> Any:
    """Run a pure Python loop for each row."""
    for _ in range(len(batch)):
        total = 0
        for number in range(ROW_LOOPS):
            total += number * number
    return batch


def return_batch(batch: Any) -> Any:
    return batch


def wait_evenly(batch: Any) -> Any:
    wait()
    return batch


def wait() -> None:
    time.sleep(WAIT_SECONDS)


_random = np.random.default_rng()


def wait_unevenly(batch: Any) -> Any:
    """Wait for a random time with the log-normal distribution of the simulation."""
    sigma = np.sqrt(np.log1p(WAIT_JITTER**2))
    time.sleep(WAIT_SECONDS * _random.lognormal(-(sigma**2) / 2, sigma))
    return batch


# Measurements without a feed


def measure_row_seconds(batches: int = 60) -> float:
    """Return the mean seconds per row of the map that runs Python loops."""
    batch = np.zeros((32, 1), np.uint8)
    start_time = time.perf_counter()
    for _ in range(batches):
        run_python_loops(batch)
    return (time.perf_counter() - start_time) / (batches * len(batch))


def measure_sleep(action: Callable[[], Any]) -> float:
    """Return the median seconds of an action that sleeps."""
    samples = []
    for _ in range(15):
        start_time = time.perf_counter()
        action()
        samples.append(time.perf_counter() - start_time)
    return statistics.median(samples)


def measure_disk_speed(path: Path) -> float:
    """Return bytes per second of sequential reads by several threads, without the page cache."""
    drop_from_page_cache(path)
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
    start_time = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(file)
    return sum(counts) / (time.perf_counter() - start_time)


def write_rows(path: Path) -> None:
    """Write a file of random rows to the disk."""
    rows = np.lib.format.open_memmap(path, "w+", np.uint8, (FILE_ROWS, ROW_NBYTES))
    block = np.random.default_rng(0).integers(0, 256, (1 << 12, ROW_NBYTES), np.uint8)
    for start in range(0, FILE_ROWS, len(block)):
        rows[start : start + len(block)] = block
    rows.flush()


def drop_from_page_cache(path: Path) -> None:
    """Flush a file to the disk, and drop it from the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
