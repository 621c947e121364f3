"""Check that a feed on Ray yields the right rows while workers are killed.

    python benchmarks/ray_kills.py [--kills 100] [--cpus 2] [--nodes 2] [--every 0.5]

The script prints one JSON document. It exits with 1 if a row is lost, repeated, changed or out of order.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

# Ray workers import forebay from the same paths as this process.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path[1:]]))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

import forebay as fb

TASK_SECONDS = 0.05  # time of the map per batch
BATCH_ROWS = 16


def main() -> None:
    arguments = parse_arguments()
    out, sys.stdout = sys.stdout, sys.stderr  # redirect the messages of Ray to stderr
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(arguments.nodes):
        cluster.add_node(num_cpus=arguments.cpus)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        result = measure(arguments)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(result, indent=1), file=out)
    sys.exit(0 if result["same"] else 1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="number of workers to kill")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs per node")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two kills")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare an epoch on Ray, during which workers are killed, with one in threads."""
    workers = arguments.cpus * arguments.nodes
    # The epoch takes 30 % longer than all kills together.
    batches = int(1.3 * arguments.kills * arguments.every * workers / TASK_SECONDS)
    rows = {"number": np.arange(batches * BATCH_ROWS)}
    start = time.monotonic()
    with make_feed(rows, "ray", add_noise_slowly) as ray_feed:
        killer = Killer(arguments.kills, arguments.every)
        killer.start()
        digest, count = hash_rows(ray_feed)
        killer.stopped.set()
        killer.join()
        ray_stats = ray_feed.stats()["ray"]
    with make_feed(rows, "thread", add_noise) as thread_feed:
        expected = hash_rows(thread_feed)
    return {
        "same": (digest, count) == expected,
        "rows": count,
        "kills": killer.killed,
        "seconds": round(time.monotonic() - start, 1),
        "ray": ray_stats,
    }


def make_feed(rows: dict[str, Any], where: str, function: Any) -> Any:
    return fb.from_arrays(rows).shuffle(seed=0).batch(BATCH_ROWS).map(function, where=where).feed()


def add_noise_slowly(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
    time.sleep(TASK_SECONDS)
    return add_noise(batch, rng)


def add_noise(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
    return {"number": batch["number"], "noise": rng.random(len(batch["number"]))}


def hash_rows(batches: Iterable[dict[str, Any]]) -> tuple[str, int]:
    """Return a hash of all rows in order, and the number of rows."""
    digest, rows = hashlib.sha256(), 0
    for batch in batches:
        digest.update(np.ascontiguousarray(batch["number"]))
        digest.update(np.ascontiguousarray(batch["noise"]))
        rows += len(batch["number"])
    return digest.hexdigest(), rows


class Killer(threading.Thread):
    """Kills a random Ray worker every `interval_seconds`, `kills` times or until `stopped` is set."""

    def __init__(self, kills: int, interval_seconds: float) -> None:
        super().__init__(daemon=True)
        self.killed, self.stopped = 0, threading.Event()
        self._kills, self._interval_seconds, self._random = kills, interval_seconds, random.Random(0)

    def run(self) -> None:
        while self.killed < self._kills and not self.stopped.wait(self._interval_seconds):
            workers = [child for child in psutil.Process().children(recursive=True) if is_worker(child)]
            if workers:
                self._random.choice(workers).kill()
                self.killed += 1


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[0].startswith("ray::RayWorker")
    except (psutil.Error, IndexError):
        return False


if __name__ == "__main__":
    main()
