"""Compare feeds of chosen rows with a plain shuffle: `python benchmarks/choosing.py`.

The script runs all cases in turn, in five rounds. It compares the rows per second of each case with those of the plain
shuffle in the same round, and prints the median of the five ratios. It also prints the median ratio of the rows per
second of CPU time, which is more reliable on a busy machine.

`python benchmarks/choosing.py --first` instead measures the time until a feed of 10^8 rows gives its first batch.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

import forebay as fb

ROWS, ROUNDS, BATCH_ROWS = 1_000_000, 5, 256
MANY_ROWS = 10**8


def cases(rows: fb.Pipeline, count: int) -> dict[str, Callable[[], fb.Pipeline]]:
    rng = np.random.default_rng(0)
    mask, weights = rng.integers(0, 2, count, dtype=np.uint8).astype(bool), rng.random(count)
    return {
        "shuffle": lambda: rows.shuffle(seed=1),
        "select half, shuffle": lambda: rows.select(mask).shuffle(seed=1),
        "split 0.9, shuffle": lambda: rows.split(0.9, 0.1)[0].shuffle(seed=1),
        "sample by weights": lambda: rows.sample(weights=weights),
        "sample without replacement": lambda: rows.sample(weights=weights, replacement=False),
        "skip": lambda: rows.skip(count // 2),
        "sequential": lambda: rows,
    }


def rows_per_second(pipeline: fb.Pipeline) -> tuple[float, float]:
    """Return the rows per second, and the rows per second of CPU time, both measured after the first batch."""
    with pipeline.batch(BATCH_ROWS).feed("numpy") as feed:
        next(iter(feed))
        started_at, cpu_started_at, received = time.perf_counter(), time.process_time(), 0
        while received < 2 * ROWS:
            received += sum(map(len, feed))
        return received / (time.perf_counter() - started_at), received / (time.process_time() - cpu_started_at)


def compare_speeds(row_nbytes: int) -> None:
    pipelines = {name: make() for name, make in cases(fb.from_arrays(np.ones((ROWS, row_nbytes), "u1")), ROWS).items()}
    rounds = [{name: rows_per_second(pipeline) for name, pipeline in pipelines.items()} for _ in range(ROUNDS)]
    for name in pipelines:
        ratio, cpu_ratio = (median(speeds[name][i] / speeds["shuffle"][i] for speeds in rounds) for i in (0, 1))
        print(f"{row_nbytes:5} B  {name:28} {ratio:5.2f} of the plain shuffle, {cpu_ratio:5.2f} by CPU time")


def time_first_batches() -> None:
    rows = fb.from_arrays(np.broadcast_to(np.zeros(16, np.float32), (MANY_ROWS, 16)))
    labels = np.arange(MANY_ROWS) % 1000
    made = cases(rows, MANY_ROWS)
    del made["sample without replacement"]
    made["filter"] = lambda: fb.from_arrays(labels).filter(lambda label: label < 500)
    for name, make in made.items():
        started_at = time.perf_counter()
        with make().batch(BATCH_ROWS).feed("numpy") as feed:
            next(iter(feed))
            seconds = time.perf_counter() - started_at
            print(f"{name:28} {seconds:6.2f} s until the first batch, with {MANY_ROWS:,} rows in the source")


if __name__ == "__main__":
    if "--first" in sys.argv:
        time_first_batches()
    else:
        compare_speeds(3072)
        compare_speeds(400)
