"""Compare a CPU-bound map on a Ray cluster with local processes and with Ray Data.

    python benchmarks/ray_map.py [--cpus 4] [--nodes 1,2] [--row-ms 3] [--seconds 8] [--turns 3] [--only map,empty,data]

The Ray cluster runs on this machine. Each node has its own raylet and object store. The training process runs on a head
node without CPUs. There are three measurements:

    map     a map in pure Python, on Ray and in local processes
    empty   a map that returns its input, so that only the transfer of batches takes time
    data    shuffled batches from Forebay and from Ray Data, with the same memory for the shuffle

The contenders of a measurement run in turn; a turn of `map` takes about --seconds. The script prints one JSON document.
If a measurement fails or is interrupted, the document contains the results so far.
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

# Ray workers import forebay from the same paths as this process.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path[1:]]))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from ray.cluster_utils import Cluster

import forebay as fb
from forebay.core.provenance import provenance

BATCH_ROWS, ROW_FLOATS = 32, 100
DATA_BATCH_ROWS = 256  # of the measurement `data`
STORE_NBYTES = 512 << 20  # size of the object store of each node
Turn = Callable[[], float]  # returns rows per second


def main() -> None:
    arguments = parse_arguments()
    out, sys.stdout = sys.stdout, sys.stderr  # redirect the messages of Ray to stderr
    nodes = [int(count) for count in arguments.nodes.split(",")]
    measurements = arguments.only.split(",")
    busy_map = BusyMap.calibrate(arguments.row_ms / 1e3)  # once, so that all contenders do the same work
    result: dict[str, Any] = {**provenance(), "machine": machine(), "asked": vars(arguments), "rounds": busy_map.rounds}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; the remaining measurements did not run"))
    try:
        for count in nodes:
            with start_cluster(count, arguments.cpus):
                workers = count * arguments.cpus
                if "map" in measurements:
                    add_turns(result, f"map, {count} nodes", compare_maps(workers, busy_map, arguments))
                if "empty" in measurements and "empty" not in result:
                    result["empty"] = compare_empty(workers, arguments)
                if "data" in measurements and count == nodes[-1] and "data" not in result:
                    result["data"] = compare_data(arguments)
    finally:
        result["ratios"] = compute_ratios(result, nodes)
        print(json.dumps(result, indent=1), file=out)


def add_turns(result: dict[str, Any], name: str, measured: dict[str, Any]) -> None:
    """Append the measurements to earlier ones of this name, or store them."""
    earlier = result.setdefault(name, measured)
    if earlier is not measured:
        earlier["stolen"] += measured["stolen"]
        earlier["ray"] += measured["ray"]
        for where, turns in measured["rows_per_second"].items():
            earlier["rows_per_second"][where] += turns


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=4, help="CPUs per node")
    parser.add_argument("--nodes", default="1,2", help="numbers of nodes, in order; 1,2,1,2 measures each number twice")
    parser.add_argument("--row-ms", type=float, default=3.0, help="milliseconds of the map per row")
    parser.add_argument("--seconds", type=float, default=8.0, help="approximate duration of a turn of `map`")
    parser.add_argument("--turns", type=int, default=3, help="turns per contender")
    parser.add_argument("--data-rows", type=int, default=1_000_000, help="rows of the measurement `data`")
    parser.add_argument("--data-mib", type=int, default=64, help="memory for the shuffle of `data`, in MiB")
    parser.add_argument("--only", default="map,empty,data", help="measurements to run")
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
def start_cluster(nodes: int, cpus: int) -> Iterator[None]:
    """Run a Ray cluster on this machine, with `cpus` CPUs per node."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_NBYTES},
    )
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=cpus, object_store_memory=STORE_NBYTES)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


# Maps


class BusyMap:
    """A map that runs a pure Python loop of `rounds` rounds for each row."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = 1
        for _ in range(self.rounds):
            number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        return {"x": row["x"] + np.float32(number & 1), "number": row["number"]}

    @classmethod
    def calibrate(cls, seconds: float) -> "BusyMap":
        """Make a map that takes this long per row, from the fastest of five trials."""
        row, rounds = {"x": np.zeros(ROW_FLOATS, np.float32), "number": 0}, 20_000
        trial_seconds = min(measure_seconds(lambda: cls(rounds)(row)) for _ in range(5))
        return cls(max(1, int(rounds * seconds / trial_seconds)))


def return_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def measure_seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def make_rows(count: int) -> dict[str, Any]:
    return {"x": np.ones((count, ROW_FLOATS), np.float32), "number": np.arange(count)}


def compare_maps(workers: int, busy_map: BusyMap, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the rows per second of the busy map in local processes and on Ray."""
    batches = max(workers * 2, int(arguments.seconds * workers / (arguments.row_ms / 1e3) / BATCH_ROWS))
    shuffled = fb.from_arrays(make_rows(batches * BATCH_ROWS)).shuffle(seed=0)
    feeds = {
        where: shuffled.map(busy_map, where=where, workers=workers).batch(BATCH_ROWS).feed()
        for where in ("process", "ray")
    }
    cpu_steal = CpuSteal()
    speeds = take_turns({where: make_epoch_turn(feed) for where, feed in feeds.items()}, arguments.turns)
    result = {"workers": workers, "batches": batches, "rows_per_second": speeds, "stolen": [cpu_steal.cores()]}
    result["ray"] = [feeds["ray"].stats()["ray"]]
    for feed in feeds.values():
        feed.close()
    return result


def compare_empty(workers: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the milliseconds per batch of a map that returns its input.

    The map runs first with all workers, then with one worker.
    """
    result = {}
    for count in (workers, 1):
        batches = fb.from_arrays(make_rows(BATCH_ROWS * 2000)).batch(BATCH_ROWS)
        feeds = {where: batches.map(return_batch, where=where, workers=count).feed() for where in ("process", "ray")}
        speeds = take_turns({where: make_epoch_turn(feed) for where, feed in feeds.items()}, arguments.turns)
        milliseconds = {where: BATCH_ROWS / statistics.median(turns) * 1e3 for where, turns in speeds.items()}
        difference = milliseconds["ray"] - milliseconds["process"]
        result[f"{count} workers"] = {"ms_per_batch": milliseconds, "ray_minus_process_ms": difference}
        for feed in feeds.values():
            feed.close()
    return result


class CpuSteal:
    """Measures how many CPUs the hypervisor gave to other virtual machines."""

    def __init__(self) -> None:
        self._start, self._start_steal = time.perf_counter(), self._read_steal_seconds()

    def cores(self) -> float:
        """Return the mean number of stolen CPUs since the creation of this object."""
        return (self._read_steal_seconds() - self._start_steal) / (time.perf_counter() - self._start)

    @staticmethod
    def _read_steal_seconds() -> float:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")  # field 8 of the first line is the steal time in ticks


def make_epoch_turn(feed: Any) -> Turn:
    """Return a turn that runs one epoch of a feed."""
    sum(1 for _ in zip(feed, range(4), strict=False))  # take four batches, so that the workers have started

    def turn() -> float:
        start, rows = time.perf_counter(), 0
        for batch in feed:
            rows += len(batch["number"])
        return rows / (time.perf_counter() - start)

    return turn


# Ray Data


def compare_data(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure shuffled batches for PyTorch, without a map and with a map on the cluster.

    The shuffle of Ray Data has a buffer of the same size as the memory budget of Forebay.
    """
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    rows, nbytes = make_rows(arguments.data_rows)["x"], arguments.data_mib << 20
    dataset = ray.data.from_numpy([rows[start : start + 50_000] for start in range(0, arguments.data_rows, 50_000)])
    pipeline = fb.from_arrays(rows).shuffle(seed=0).batch(DATA_BATCH_ROWS)
    contenders = {
        "forebay": make_feed_turn(pipeline, nbytes),
        "forebay, map on ray": make_feed_turn(pipeline.map(double, where="ray"), nbytes),
        "ray data": make_dataset_turn(dataset, nbytes),
        "ray data, map": make_dataset_turn(dataset.map_batches(double_column), nbytes),
    }
    for turn in contenders.values():
        turn()  # warm-up
    speeds = take_turns(contenders, arguments.turns)
    return {"rows": arguments.data_rows, "shuffled_in_mib": arguments.data_mib, "rows_per_second": speeds}


def double(batch: Any) -> Any:
    return batch * np.float32(2)


def double_column(batch: dict[str, Any]) -> dict[str, Any]:
    return {"data": batch["data"] * np.float32(2)}


def make_feed_turn(pipeline: fb.Pipeline, nbytes: int) -> Turn:
    def turn() -> float:
        # Each turn closes its feed, so that Ray Data can use all CPUs in its own turns.
        with pipeline.feed("torch", device="cpu", host_bytes=nbytes) as feed:
            next(iter(feed))  # wait until the workers have started
            return measure_speed(feed)

    return turn


def make_dataset_turn(dataset: Any, nbytes: int) -> Turn:
    buffer_rows = nbytes // (ROW_FLOATS * 4)

    def turn() -> float:
        batches = dataset.iter_torch_batches(
            batch_size=DATA_BATCH_ROWS, local_shuffle_buffer_size=buffer_rows, local_shuffle_seed=0, prefetch_batches=4
        )
        return measure_speed(batch["data"] for batch in batches)

    return turn


def measure_speed(batches: Iterable[Any]) -> float:
    """Take all batches, and return rows per second."""
    start = time.perf_counter()
    rows = sum(len(batch) for batch in batches)
    return rows / (time.perf_counter() - start)


# Turns and ratios


def take_turns(contenders: dict[str, Turn], turns: int) -> dict[str, list[float]]:
    """Run the contenders in turn, and return the rows per second of each turn."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, turn in contenders.items():
            speeds[name].append(turn())
    return speeds


def compute_ratios(result: dict[str, Any], nodes: list[int]) -> dict[str, float]:
    """Return ratios of median rows per second. "A beside B" means A / B."""
    ratios, medians = {}, {}
    for count in sorted(set(nodes)):
        speeds = result.get(f"map, {count} nodes", {}).get("rows_per_second")
        if speeds:
            medians[count] = {where: statistics.median(turns) for where, turns in speeds.items()}
            ratios[f"ray beside processes, {count} nodes"] = medians[count]["ray"] / medians[count]["process"]
    for count in medians:
        if count * 2 in medians:
            ratios[f"{count * 2} nodes beside {count}"] = medians[count * 2]["ray"] / medians[count]["ray"]
            ratios[f"as many processes here: {count * 2} beside {count}"] = (
                medians[count * 2]["process"] / medians[count]["process"]
            )
    data = {name: statistics.median(turns) for name, turns in result.get("data", {}).get("rows_per_second", {}).items()}
    if data:
        ratios["forebay beside ray data"] = data["forebay"] / data["ray data"]
        ratios["forebay beside ray data, both with a map on the cluster"] = (
            data["forebay, map on ray"] / data["ray data, map"]
        )
    return ratios


if __name__ == "__main__":
    main()
