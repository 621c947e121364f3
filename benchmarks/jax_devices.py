"""Measure three ways to make global JAX arrays from a feed, on simulated devices.

    python benchmarks/jax_devices.py [--devices 8] [--rows 4096] [--row-bytes 3072] [--batch 256] [--turns 7]
                                     [--epochs 4]

All contenders read the same shuffled rows with Forebay, and run in turns. In each turn, a contender runs `--epochs`
epochs. The script prints the median time of a batch over the turns, its range, and its ratio to the first contender.

    sharding       feed("jax", device=sharding)
    local data     feed("numpy") and jax.make_array_from_process_local_data for each field
    device_put     feed("numpy") and jax.device_put(array, sharding) for each field
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"devices": 8, "rows": 4096, "row-bytes": 3072, "batch": 256, "turns": 7, "epochs": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    work = parser.parse_args()
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={work.devices}"}
    contenders = make_contenders(work)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(work.turns):
        for name, run_epoch in contenders.items():
            started_at = time.perf_counter()
            batches = sum(run_epoch() for _ in range(work.epochs))
            times[name].append((time.perf_counter() - started_at) / batches)
    first = statistics.median(times["sharding"])
    for name, found in times.items():
        median = statistics.median(found)
        spread = f"{min(found) * 1e6:.0f} to {max(found) * 1e6:.0f}"
        print(f"{name:12} {median * 1e6:7.0f} us a batch ({spread}), {median / first:.2f} x")


def make_contenders(work: argparse.Namespace) -> dict[str, Callable[[], int]]:
    """Return functions that run one epoch and return its number of batches."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import forebay as fb

    sharding = NamedSharding(jax.make_mesh((work.devices,), ("data",)), PartitionSpec("data"))
    rows = np.random.default_rng(0).integers(0, 255, (work.rows, work.row_bytes), dtype=np.uint8)
    data = {"x": rows, "y": np.arange(work.rows, dtype=np.int32)}
    pipeline = fb.from_arrays(data).shuffle(seed=0).batch(work.batch, drop_remainder=True)
    feed = pipeline.feed("jax", device=sharding)
    by_local_data, by_device_put = pipeline.feed("numpy"), pipeline.feed("numpy")

    def run(batches: Any, convert: Callable[[Any], Any]) -> int:
        count = 0
        for batch in batches:
            last = jax.tree.map(convert, batch)
            count += 1
        jax.block_until_ready(last)
        return count

    return {
        "sharding": lambda: run(feed, lambda array: array),
        "local data": lambda: run(by_local_data, lambda array: jax.make_array_from_process_local_data(sharding, array)),
        "device_put": lambda: run(by_device_put, lambda array: jax.device_put(array, sharding)),
    }


if __name__ == "__main__":
    main()
