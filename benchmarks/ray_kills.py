"""An epoch on a Ray cluster while random workers are killed: every row once, in the order of an undisturbed epoch?

    python benchmarks/ray_kills.py [--kills 100] [--cpus 2] [--nodes 2] [--every 0.5]

Prints one JSON document, and ends with 1 if a row was lost, repeated, changed or moved.
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

os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path[1:]]))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

import forebay as fb

TASK_SECONDS, BATCH_ROWS = 0.05, 16


def main() -> None:
    asked = parse_arguments()
    out, sys.stdout = sys.stdout, sys.stderr  # Ray's own talk goes where talk belongs
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(asked.nodes):
        cluster.add_node(num_cpus=asked.cpus)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        told = measure(asked)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(told, indent=1), file=out)
    sys.exit(0 if told["same"] else 1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--cpus", type=int, default=2, help="of each node")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two kills")
    return parser.parse_args()


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    workers = asked.cpus * asked.nodes
    batches = int(1.3 * asked.kills * asked.every * workers / TASK_SECONDS)
    rows = {"number": np.arange(batches * BATCH_ROWS)}
    began = time.monotonic()
    with epoch(rows, "ray", slow) as far:
        killer = Killer(asked.kills, asked.every)
        killer.start()
        digest, count = digest_of(far)
        killer.stopped.set()
        killer.join()
        counted = far.stats()["ray"]
    with epoch(rows, "thread", plain) as near:
        expected = digest_of(near)
    return {
        "same": (digest, count) == expected,
        "rows": count,
        "kills": killer.killed,
        "seconds": round(time.monotonic() - began, 1),
        "ray": counted,
    }


def epoch(rows: dict[str, Any], where: str, function: Any) -> Any:
    return fb.from_arrays(rows).shuffle(seed=0).batch(BATCH_ROWS).map(function, where=where).feed()


def slow(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
    time.sleep(TASK_SECONDS)
    return plain(batch, rng)


def plain(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
    return {"number": batch["number"], "noise": rng.random(len(batch["number"]))}


def digest_of(batches: Iterable[dict[str, Any]]) -> tuple[str, int]:
    digest, rows = hashlib.sha256(), 0
    for batch in batches:
        digest.update(np.ascontiguousarray(batch["number"]))
        digest.update(np.ascontiguousarray(batch["noise"]))
        rows += len(batch["number"])
    return digest.hexdigest(), rows


class Killer(threading.Thread):
    """Kills one of the feed's workers, of whichever node, now and then."""

    def __init__(self, kills: int, every: float) -> None:
        super().__init__(daemon=True)
        self.killed, self.stopped = 0, threading.Event()
        self._kills, self._every, self._random = kills, every, random.Random(0)

    def run(self) -> None:
        while self.killed < self._kills and not self.stopped.wait(self._every):
            found = [one for one in psutil.Process().children(recursive=True) if is_worker(one)]
            if found:
                self._random.choice(found).kill()
                self.killed += 1


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[0].startswith("ray::RayWorker")
    except (psutil.Error, IndexError):
        return False


if __name__ == "__main__":
    main()
