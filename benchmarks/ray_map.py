"""Compare a CPU-bound map on a Ray cluster with local processes and with Ray Data.

    python benchmarks/ray_map.py [--cpus 4] [--nodes 1,2] [--row-ms 3] [--seconds 8] [--turns 3] [--only map,empty,data]

The Ray cluster runs on this machine: a raylet and an object store for each node, and a head node without CPUs, which
runs the trainer. `map` is pure Python; its contenders run in turn, each for about --seconds. `empty` returns its
input, so that only the transfer is measured. `data` shuffles rows with the same memory. The script prints one JSON
document. It also prints the results so far if a later measurement fails or is interrupted.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The processes of the nodes import forebay and Ray from the same paths as this process.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path[1:]]))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from ray.cluster_utils import Cluster

import forebay as fb

BATCH_ROWS, ROW_FLOATS = 32, 100
DATA_BATCH_ROWS = 256
STORE_NBYTES = 512 << 20  # per node
Turn = Callable[[], float]  # returns rows per second


def main() -> None:
    arguments = parse_arguments()
    out, sys.stdout = sys.stdout, sys.stderr  # messages of Ray go to stderr
    nodes = [int(count) for count in arguments.nodes.split(",")]
    wanted = arguments.only.split(",")
    busy = BusyMap.lasting(arguments.row_ms / 1e3)  # calibrated once, so that all contenders do the same work
    result: dict[str, Any] = {"machine": machine(), "asked": vars(arguments), "rounds": busy.rounds}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; the remaining cases were not measured"))
    try:
        for count in nodes:
            with cluster(count, arguments.cpus):
                workers = count * arguments.cpus
                if "map" in wanted:
                    add_turns(result, f"map, {count} nodes", compare_maps(workers, busy, arguments))
                if "empty" in wanted and "empty" not in result:
                    result["empty"] = compare_empty(workers, arguments)
                if "data" in wanted and count == nodes[-1] and "data" not in result:
                    result["data"] = compare_data(arguments)
    finally:
        result["ratios"] = ratios(result, nodes)
        print(json.dumps(result, indent=1), file=out)


def add_turns(result: dict[str, Any], name: str, found: dict[str, Any]) -> None:
    """Add later turns to earlier ones of the same name."""
    before = result.setdefault(name, found)
    if before is not found:
        before["stolen"] += found["stolen"]
        before["ray"] += found["ray"]
        for where, turns in found["rows_per_second"].items():
            before["rows_per_second"][where] += turns


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=4, help="CPUs per node")
    parser.add_argument("--nodes", default="1,2", help="numbers of nodes, in order; 1,2,1,2 measures each number twice")
    parser.add_argument("--row-ms", type=float, default=3.0, help="time of the map per row")
    parser.add_argument("--seconds", type=float, default=8.0, help="approximate duration of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--data-rows", type=int, default=1_000_000)
    parser.add_argument("--data-mib", type=int, default=64, help="memory for the shuffle")
    parser.add_argument("--only", default="map,empty,data")
    return parser.parse_args()


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "ray": ray.__version__,
        "forebay": fb.__version__,
    }


@contextmanager
def cluster(nodes: int, cpus: int) -> Iterator[None]:
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_NBYTES},
    )
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=cpus, object_store_memory=STORE_NBYTES)
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        made.shutdown()


# Maps


class BusyMap:
    """A map that runs a pure Python loop for each row."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = 1
        for _ in range(self.rounds):
            number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        return {"x": row["x"] + np.float32(number & 1), "number": row["number"]}

    @classmethod
    def lasting(cls, seconds: float) -> "BusyMap":
        """Make a map that takes this long per row; the fastest of five runs counts."""
        row, rounds = {"x": np.zeros(ROW_FLOATS, np.float32), "number": 0}, 20_000
        return cls(max(1, int(rounds * seconds / min(timed(lambda: cls(rounds)(row)) for _ in range(5)))))


def empty(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rows_of(count: int) -> dict[str, Any]:
    return {"x": np.ones((count, ROW_FLOATS), np.float32), "number": np.arange(count)}


def compare_maps(workers: int, busy: BusyMap, arguments: argparse.Namespace) -> dict[str, Any]:
    batches = max(workers * 2, int(arguments.seconds * workers / (arguments.row_ms / 1e3) / BATCH_ROWS))
    rows = rows_of(batches * BATCH_ROWS)
    feeds = {
        where: fb.from_arrays(rows).shuffle(seed=0).map(busy, where=where, workers=workers).batch(BATCH_ROWS).feed()
        for where in ("process", "ray")
    }
    stolen = CpuSteal()
    found = take_turns({where: epoch_turn(feed) for where, feed in feeds.items()}, arguments.turns)
    result = {"workers": workers, "batches": batches, "rows_per_second": found, "stolen": [stolen.cores()]}
    result["ray"] = [feeds["ray"].stats()["ray"]]
    for feed in feeds.values():
        feed.close()
    return result


def compare_empty(workers: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the time per batch of a map that does nothing, with all workers and with one."""
    result = {}
    for count in (workers, 1):
        feeds = {
            where: fb.from_arrays(rows_of(BATCH_ROWS * 2000)).batch(BATCH_ROWS).map(empty, where=where, workers=count)
            for where in ("process", "ray")
        }
        running = {where: pipeline.feed() for where, pipeline in feeds.items()}
        found = take_turns({where: epoch_turn(feed) for where, feed in running.items()}, arguments.turns)
        per_batch = {where: BATCH_ROWS / statistics.median(turns) * 1e3 for where, turns in found.items()}
        result[f"{count} workers"] = {"ms_per_batch": per_batch, "ray_minus_process_ms": minus(per_batch)}
        for feed in running.values():
            feed.close()
    return result


class CpuSteal:
    """Measures how many CPUs of this virtual machine the host gave to other machines."""

    def __init__(self) -> None:
        self._start, self._before = time.perf_counter(), self._seconds()

    def cores(self) -> float:
        return (self._seconds() - self._before) / (time.perf_counter() - self._start)

    @staticmethod
    def _seconds() -> float:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def minus(per_batch: dict[str, float]) -> float:
    return per_batch["ray"] - per_batch["process"]


def epoch_turn(feed: Any) -> Turn:
    sum(1 for _ in zip(feed, range(4), strict=False))  # wait until the workers have started

    def turn() -> float:
        start, rows = time.perf_counter(), 0
        for batch in feed:
            rows += len(batch["number"])
        return rows / (time.perf_counter() - start)

    return turn


# Ray Data


def compare_data(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure shuffled batches for PyTorch, without a map and with a map on the cluster."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    rows, nbytes = rows_of(arguments.data_rows), arguments.data_mib << 20
    dataset = ray.data.from_numpy(
        [rows["x"][start : start + 50_000] for start in range(0, arguments.data_rows, 50_000)]
    )
    plain = fb.from_arrays(rows["x"]).shuffle(seed=0).batch(DATA_BATCH_ROWS)
    contenders = {
        "forebay": feed_turn(plain, nbytes),
        "forebay, map on ray": feed_turn(plain.map(doubled, where="ray"), nbytes),
        "ray data": dataset_turn(dataset, nbytes),
        "ray data, map": dataset_turn(dataset.map_batches(doubled_column), nbytes),
    }
    for turn in contenders.values():
        turn()  # warm-up
    found = take_turns(contenders, arguments.turns)
    return {"rows": arguments.data_rows, "shuffled_in_mib": arguments.data_mib, "rows_per_second": found}


def doubled(batch: Any) -> Any:
    return batch * np.float32(2)


def doubled_column(batch: dict[str, Any]) -> dict[str, Any]:
    return {"data": batch["data"] * np.float32(2)}


def feed_turn(pipeline: fb.Pipeline, nbytes: int) -> Turn:
    def turn() -> float:
        # Each turn closes its feed, because Ray Data needs the CPUs too.
        with pipeline.feed("torch", device="cpu", host_bytes=nbytes) as feed:
            next(iter(feed))
            return speed(feed)

    return turn


def dataset_turn(dataset: Any, nbytes: int) -> Turn:
    buffer_rows = nbytes // (ROW_FLOATS * 4)

    def turn() -> float:
        batches = dataset.iter_torch_batches(
            batch_size=DATA_BATCH_ROWS, local_shuffle_buffer_size=buffer_rows, local_shuffle_seed=0, prefetch_batches=4
        )
        return speed(batch["data"] for batch in batches)

    return turn


def speed(batches: Iterable[Any]) -> float:
    start = time.perf_counter()
    rows = sum(len(batch) for batch in batches)
    return rows / (time.perf_counter() - start)


# Turns and ratios


def take_turns(contenders: dict[str, Turn], turns: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, turn in contenders.items():
            found[name].append(turn())
    return found


def ratios(result: dict[str, Any], nodes: list[int]) -> dict[str, float]:
    computed, found = {}, {}
    for count in sorted(set(nodes)):
        speeds = result.get(f"map, {count} nodes", {}).get("rows_per_second")
        if speeds:
            found[count] = {where: statistics.median(turns) for where, turns in speeds.items()}
            computed[f"ray beside processes, {count} nodes"] = found[count]["ray"] / found[count]["process"]
    for count in found:
        if count * 2 in found:
            computed[f"{count * 2} nodes beside {count}"] = found[count * 2]["ray"] / found[count]["ray"]
            computed[f"as many processes here: {count * 2} beside {count}"] = (
                found[count * 2]["process"] / found[count]["process"]
            )
    data = {name: statistics.median(turns) for name, turns in result.get("data", {}).get("rows_per_second", {}).items()}
    if data:
        computed["forebay beside ray data"] = data["forebay"] / data["ray data"]
        computed["forebay beside ray data, both with a map on the cluster"] = (
            data["forebay, map on ray"] / data["ray data, map"]
        )
    return computed


if __name__ == "__main__":
    main()
