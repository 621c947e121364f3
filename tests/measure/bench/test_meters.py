"""The meters that are not throughput, each on the smallest work there is, in this process."""

from collections.abc import Iterable
from mmap import mmap
from types import SimpleNamespace

import numpy as np

from forebay.measure.bench.contenders import floor
from forebay.measure.bench.data import write_file
from forebay.measure.bench.meters import Pace, first_batch, handoff, memory
from forebay.measure.bench.model import Work

PACE = Pace(seconds=0.01, warm_up_seconds=0.0, repeats=1)


def test_first_batch_makes_the_pipeline_anew_for_every_sample():
    made = []
    contender = SimpleNamespace(epochs=lambda work: lambda: made.append(1) or iter([0]))
    gauge = first_batch.prepare(contender, Work(8, (1,), 4), PACE)
    assert gauge.sample()["first"] > 0
    assert gauge.sample()["first"] > 0
    assert len(made) == 2


def test_a_hand_off_is_the_difference_to_numpy():
    def epochs(work: Work):
        def epoch() -> Iterable[int]:
            return (sum(range(200_000)) if work.options["to"] == "slow" else 0 for _ in range(50))

        return epoch

    gauge = handoff.prepare(SimpleNamespace(epochs=epochs), Work(8, (1,), 4, options={"to": "slow"}), PACE)
    assert gauge.sample()["cpu"] > 0


def test_memory_that_is_kept_shows_as_growth():
    kept: list[mmap] = []  # pages of its own each: an allocator may still hold what earlier tests gave back

    def keep() -> None:
        kept.append(mmap(-1, 2**23))
        kept[-1].write(b"x" * 2**23)

    def epochs(work: Work):
        return lambda: (keep() for _ in range(2))

    work = Work(8, (1,), 4, options={"epochs": 6})
    sample = memory.prepare(SimpleNamespace(epochs=epochs), work, PACE).sample()
    assert sample["grown"] >= 80  # of 96; what others give back meanwhile is less
    assert sample["late"] >= 32  # of 48
    assert sample["slope"] >= 8 * 1024  # of 16


def test_the_floor_gives_every_row_once_per_epoch(tmp_path):
    work = Work(100, (3,), 32)
    path = str(write_file(work, "npy", tmp_path))
    start = floor.epochs(Work(100, (3,), 32, path=path))
    rows = np.concatenate([batch.copy() for batch in start()])
    assert np.array_equal(np.sort(rows[:, 0]), np.sort(np.load(path)[:, 0]))


def test_a_sparse_file_holds_many_rows_and_takes_no_disk(tmp_path):
    path = write_file(Work(10**9, (), 1024, dtype="uint8"), "sparse", tmp_path)
    assert np.load(path, mmap_mode="r").shape == (10**9,)
    assert path.stat().st_blocks * 512 < 2**20
