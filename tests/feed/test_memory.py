"""The memory of a feed, without its source, stays constant and within the budget."""

import textwrap

import pytest
from tests.support.run_python import check_python

PREAMBLE = """
import ctypes, re, time, numpy as np, forebay as fb
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: huge pages make memory grow at random times
def resident_nbytes():
    status = open("/proc/self/status").read()
    return sum(int(re.search(name + r":\\s+(\\d+) kB", status)[1]) for name in ("RssAnon", "RssShmem")) * 1024
def double(batch):
    return batch * 2
def with_all_slots(feed):
    next(iter(feed))
    while not feed._runner._exchange.ring.is_full:  # otherwise slots allocated later would count as growth
        time.sleep(0.001)
    return feed
def epochs(feed, count):
    peaks = []
    for _ in range(count):
        peak = 0
        for step, batch in enumerate(feed):
            if step % 16 == 0:
                peak = max(peak, resident_nbytes())
        peaks.append(peak)
    return peaks
"""


def run(script):
    source = PREAMBLE + textwrap.dedent(script)
    # With these settings, malloc returns freed memory to the system at once.
    malloc_settings = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    return [int(word) for word in check_python("-c", source, **malloc_settings).split()]


@pytest.mark.parametrize(
    "pipeline",
    [
        "fb.from_arrays(data).shuffle(seed=0).batch(32)",
        "fb.from_arrays(data).shuffle(seed=0).batch(2048).map(double)",
        "fb.from_arrays(data[:, :50]).shuffle(seed=0).batch(256)",
    ],
)
def test_memory_over_50_epochs_is_flat_and_within_the_budget(pipeline):
    planned, slot, before, early, late = run(f"""
        data = np.ones((20_000, 100), np.float32)
        before = resident_nbytes()
        feed = with_all_slots({pipeline}.feed("numpy", host_bytes="32MiB"))
        print(feed.plan.nbytes, feed.plan.slot_nbytes, before, max(epochs(feed, 35)), max(epochs(feed, 15)))
    """)
    assert planned <= 32 << 20
    assert max(early, late) - before < planned + (16 << 20)  # the plan and an allowance of 16 MiB
    # A page counts as resident only after its first write. This allows for two slots that were not yet written.
    assert late - early < 2 * slot + (2 << 20)


def test_memory_of_process_maps_with_their_shared_memory_is_flat():
    slot, before, early, late = run("""
        if __name__ == "__main__":
            from operator import neg
            data = np.ones((20_000, 100), np.float32)
            before = resident_nbytes()
            pipeline = fb.from_arrays(data).shuffle(seed=0).batch(512).map(neg, where="process")
            feed = with_all_slots(pipeline.feed("numpy", host_bytes="32MiB"))
            print(feed.plan.slot_nbytes, before, max(epochs(feed, 20)), max(epochs(feed, 20)))
    """)
    assert max(early, late) - before < (32 + 64) << 20  # the budget and an allowance of 64 MiB
    assert late - early < 2 * slot + (2 << 20)


def test_a_file_larger_than_the_budget_is_read_with_flat_memory(tmp_path):
    before, peak = run(f"""
        path = {str(tmp_path / "big.npy")!r}
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(300_000, 250))
        array[::1000] = 1
        array.flush()
        del array
        before = resident_nbytes()
        feed = fb.from_files(path).shuffle(seed=0, block=1000).batch(512).feed("numpy", host_bytes="32MiB")
        print(before, max(epochs(feed, 1)))
    """)
    assert peak - before < (32 + 64) << 20  # the budget and an allowance of 64 MiB


def test_a_generator_is_fed_within_the_budget():
    before, peak = run("""
        rows = lambda: (np.full(1000, number, np.float32) for number in range(20_000))
        before = resident_nbytes()
        feed = fb.from_generator(rows).shuffle(seed=0, window="8MiB").batch(64).feed("numpy", host_bytes="32MiB")
        print(before, max(epochs(feed, 2)))
    """)
    assert peak - before < (32 + 64) << 20  # the budget and an allowance of 64 MiB


def test_only_few_batches_larger_than_planned_are_held():
    before, peak = run("""
        rows = [np.zeros(8, np.float32)] + [np.zeros(1 << 20, np.float32)] * 60
        before = resident_nbytes()
        feed = fb.from_source(rows).batch(4, pad=0).feed("numpy", host_bytes="64MiB")
        print(before, max(epochs(feed, 1)))
    """)
    assert peak - before < (64 + 96) << 20  # the budget, and 6 batches of 16 MiB that threads stack outside of slots
