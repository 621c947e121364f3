"""The meters of first batches, hand-offs and memory, and the baseline of the CPU cases."""

from collections.abc import Iterable
from mmap import mmap

import numpy as np

from forebay.measure.bench.contenders.numpy import take_batches
from forebay.measure.bench.data import write_file
from forebay.measure.bench.meters import RunSettings, first_batch, handoff, memory
from forebay.measure.bench.model import Workload

SETTINGS = RunSettings(seconds=0.01, warm_up_seconds=0.0, repeats=1)


def test_first_batch_makes_a_new_loader_for_every_sample():
    made = []
    sampler = first_batch.prepare(lambda work: lambda: made.append(1) or iter([0]), Workload(8, (1,), 4), SETTINGS)
    cold = sampler.sample()
    assert cold["first"] == cold["cold"] > 0
    assert sampler.sample()["cold"] == cold["cold"]
    assert len(made) == 2


def test_a_hand_off_costs_the_difference_to_numpy():
    def contender(work: Workload):
        def epoch() -> Iterable[int]:
            return (sum(range(200_000)) if work.options["to"] == "slow" else 0 for _ in range(50))

        return epoch

    sampler = handoff.prepare(contender, Workload(8, (1,), 4, options={"to": "slow"}), SETTINGS)
    assert sampler.sample()["cpu"] > 0


def test_memory_that_is_not_released_shows_as_growth():
    kept: list[mmap] = []  # new pages each time: an allocator may still hold memory that earlier tests freed

    def keep() -> None:
        kept.append(mmap(-1, 2**23))
        kept[-1].write(b"x" * 2**23)

    def contender(work: Workload):
        return lambda: (keep() for _ in range(2))

    work = Workload(8, (1,), 4, options={"epochs": 6})
    sample = memory.prepare(contender, work, SETTINGS).sample()
    # Six epochs keep 96 MiB. Other code may free some memory meanwhile, so the limits are lower.
    assert sample["grown"] >= 80  # MiB
    assert sample["late"] >= 32  # MiB of the 48 MiB that the last three epochs keep
    assert sample["slope"] >= 8 * 1024  # KiB per epoch, which keeps 16 MiB


def test_the_baseline_yields_every_row_once_per_epoch(tmp_path):
    work = Workload(100, (3,), 32)
    path = str(write_file(work, "npy", tmp_path))
    start = take_batches(Workload(100, (3,), 32, path=path))
    rows = np.concatenate([batch.copy() for batch in start()])
    assert np.array_equal(np.sort(rows[:, 0]), np.sort(np.load(path)[:, 0]))


def test_a_sparse_file_has_many_rows_and_occupies_no_disk(tmp_path):
    path = write_file(Workload(10**9, (), 1024, dtype="uint8"), "sparse", tmp_path)
    assert np.load(path, mmap_mode="r").shape == (10**9,)
    assert path.stat().st_blocks * 512 < 2**20
