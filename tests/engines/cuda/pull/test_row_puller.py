"""Feeds on the CUDA engine with a fake driver: every batch equals the host batch."""

import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import (
    KINDS,
    aligned_rows,
    assert_same,
    assert_same_as_host,
    feed_of,
    host_batches,
    host_epoch,
    random_rows,
    read_all,
)
from tests.support.fake_cuda import KERNELS, PACES, fake_cuda, feed_threads, wait_until_located
from tests.support.profiles import FEW_EXAMPLES

import forebay as fb

DTYPES = ["u1", "i2", "f4", "f8", "c16", "?", "M8[s]", "S5"]


@pytest.fixture
def framework(every_framework):
    return every_framework


leaves = st.tuples(  # the arguments length, dtype, apart and offset of `random_rows`
    st.integers(1, 400),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 0, 3, 16, 5000]),
    st.sampled_from([0, 0, 1, 8, 16]),
)
orders = st.sampled_from([
    lambda pipeline: pipeline,
    lambda pipeline: pipeline.shuffle(seed=5),
    lambda pipeline: pipeline.shuffle(seed=5, block=16),
    lambda pipeline: pipeline.shard(1, 3),
    lambda pipeline: pipeline.shuffle(seed=2).shard(0, 2),
])  # fmt: skip


@settings(derandomize=True)
@given(
    st.integers(3, 150), st.lists(leaves, min_size=1, max_size=3), orders, st.integers(1, 20),
    st.sampled_from(["never", "always", "auto"]), st.sampled_from(KINDS), st.sampled_from(PACES),
    st.integers(0, 9), st.booleans(),
)  # fmt: skip
def test_every_batch_equals_the_host_batch(rows, leaves, order, batch, resident, kind, pace, seed, is_single_call):
    data = {
        f"leaf{number}": random_rows(rows, length, dtype, apart=apart, offset=offset)
        for number, (length, dtype, apart, offset) in enumerate(leaves)
    }
    pipeline = order(fb.from_arrays(data)).batch(batch)
    with fake_cuda(kind=kind, pace=pace, seed=seed, is_single_call=is_single_call) as framework:
        assert_same_as_host(pipeline, framework, epochs=2, resident=resident)


@settings(FEW_EXAMPLES, derandomize=True)
@given(st.integers(200, 2000), st.integers(1, 300), st.integers(0, 900_000), st.sampled_from(PACES))
def test_any_limit_of_device_bytes_gives_the_host_rows(rows, row_nbytes, more, pace):
    pipeline = fb.from_arrays({"x": random_rows(rows, row_nbytes, "u1")}).shuffle(seed=1).batch(16)
    with fake_cuda(pace=pace) as framework:
        assert_same_as_host(pipeline, framework, epochs=2, device_bytes=250_000 + more)


def test_some_rows_are_resident_if_not_all_fit(framework):
    pipeline = fb.from_arrays({"x": random_rows(1000, 512, "u1")}).shuffle(seed=1).batch(16)
    assert "part resident" in assert_same_as_host(pipeline, framework, device_bytes=500_000)


def test_rows_are_pulled_by_dma_and_by_kernels_in_address_order(framework):
    data = {"large": random_rows(200, 3000, "u1"), "wide": random_rows(200, 4, "f4"), "odd": random_rows(200, 7, "u1")}
    explained = assert_same_as_host(fb.from_arrays(data).shuffle(seed=1).batch(16), framework, resident="never")
    assert "pull" in explained
    assert framework.gpu.copied > 200
    unused = {"gather_aligned", "gather_bulk", "narrow_numbers", "resize_images"}
    assert set(KERNELS) - unused <= set(framework.gpu.launched)


def test_a_process_with_one_cpu_pulls_large_rows_by_kernel():
    pipeline = fb.from_arrays({"large": aligned_rows(200, 3008)}).shuffle(seed=1).batch(16)
    with fake_cuda(min_dma_cores=10**6) as framework:
        assert "one CPU" in assert_same_as_host(pipeline, framework, epochs=2, resident="never")
        assert "gather_aligned" in framework.gpu.launched
        assert framework.gpu.copied < 100  # only the copies of rows that were staged first


def test_without_batched_copies_kernels_pull_large_rows_and_explain_reports_it():
    pipeline = fb.from_arrays({"large": random_rows(200, 3000, "u1")}).shuffle(seed=1).batch(16)
    with fake_cuda(is_single_call=False) as framework:
        assert "one DMA per call" in assert_same_as_host(pipeline, framework, resident="never")
        assert "gather_unaligned" in framework.gpu.launched


def test_aligned_rows_use_the_aligned_kernel(framework):
    pipeline = fb.from_arrays({"x": aligned_rows(200, 48)}).shuffle(seed=1).batch(16)
    assert_same_as_host(pipeline, framework, resident="always")
    assert "gather_aligned" in framework.gpu.launched
    assert "gather_unaligned" not in framework.gpu.launched


@pytest.mark.parametrize(("capability", "kernel"), [((9, 0), "gather_bulk"), ((8, 6), "gather_aligned")])
def test_long_resident_rows_use_bulk_copies_if_the_device_has_them(capability, kernel):
    pipeline = fb.from_arrays({"x": aligned_rows(60, 20_000)}).shuffle(seed=1).batch(7)
    with fake_cuda(capability=capability) as framework:
        assert_same_as_host(pipeline, framework, epochs=3, resident="always")
        assert framework.gpu.launched[-1] == kernel


def test_long_unaligned_rows_do_not_use_bulk_copies(framework):
    pipeline = fb.from_arrays({"x": random_rows(60, 20_001, "u1")}).shuffle(seed=1).batch(7)
    assert_same_as_host(pipeline, framework, epochs=3, resident="always")
    assert "gather_bulk" not in framework.gpu.launched


def test_rows_of_several_files_equal_the_host_rows(framework, tmp_path):
    for number, rows in enumerate((70, 1, 33, 120)):
        np.save(tmp_path / f"{number}.npy", random_rows(rows, 90, "f4"))
    files = fb.from_files(str(tmp_path / "*.npy"))
    assert len(files.batch(9).feed("numpy", device="cpu")) == 25
    for resident in ("never", "always"):
        assert_same_as_host(files.batch(9), framework, resident=resident)
        assert_same_as_host(files.shuffle(seed=4).batch(9), framework, resident=resident)


def test_arrays_smaller_than_a_page_may_change_between_epochs(framework):
    data = {"x": np.arange(30, dtype="i4")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(4)
    with feed_of(pipeline, framework, resident="never") as feed:
        next(feed)
        wait_until_located()
        for number in range(3):
            data["x"][...] = np.arange(30) + 100 * number
            feed.set_epoch(number)
            assert_same(read_all(framework, feed), host_epoch(pipeline, number))


def test_an_array_changed_between_epochs_is_pulled_again(framework):
    data = {"x": random_rows(400, 100, "u1")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(16)
    with feed_of(pipeline, framework, resident="always") as feed:
        next(feed)
        wait_until_located()
        data["x"][...] += 120
        feed.set_epoch(1)
        assert_same(read_all(framework, feed), host_epoch(pipeline, 1))
        assert "was changed since its upload" in feed.explain()


def test_resident_rows_of_a_changed_array_are_freed(framework):
    data = {"x": random_rows(400, 1000, "u1")}
    with feed_of(fb.from_arrays(data).shuffle(seed=1).batch(16), framework, resident="always") as feed:
        read_all(framework, feed)
        wait_until_located()
        read_all(framework, feed)
        assert max(framework.gpu.memory.values()) >= data["x"].nbytes
        data["x"][...] += 120
        read_all(framework, feed)
        read_all(framework, feed)
        assert max(framework.gpu.memory.values()) < data["x"].nbytes


def test_fills_are_serial_only_while_all_rows_are_resident(framework):
    data = {"x": random_rows(400, 100, "u1")}
    with feed_of(fb.from_arrays(data).shuffle(seed=1).batch(8), framework, resident="always") as feed:

        def streams():
            read_all(framework, feed)
            return {slot.memory.stream for slot in feed._runner._exchange.slots.values()}

        next(feed)
        wait_until_located()
        for _ in range(5):
            read_all(framework, feed)
        assert len(streams()) == 1
        data["x"][...] += 120
        for _ in range(5):
            read_all(framework, feed)
        assert len(streams()) == 2


def test_refused_page_locks_lead_to_staging_and_are_reported(framework):
    data = {"x": random_rows(400, 100, "u1")}
    first = data["x"].ctypes.data
    framework.gpu.refuse_lock = lambda address, nbytes: first <= address < first + 40_000
    explained = assert_same_as_host(fb.from_arrays(data).shuffle(seed=1).batch(16), framework, resident="never")
    assert "refused" in explained
    assert "stages rows instead" in explained
    assert framework.gpu.launched == []


def test_without_memory_for_resident_rows_the_device_pulls_them_and_explain_reports_it(framework):
    framework.refuse = lambda nbytes: nbytes >= 50_000
    pipeline = fb.from_arrays({"x": random_rows(700, 100, "u1")}).shuffle(seed=1).batch(8)
    assert "pulls rows from the host in every epoch" in assert_same_as_host(pipeline, framework, resident="always")


def test_the_consumer_gets_the_error_if_slots_cannot_be_allocated(framework):
    framework.refuse = lambda nbytes: True
    pipeline = fb.from_arrays({"x": random_rows(100, 10, "u1")}).batch(8)
    with feed_of(pipeline, framework) as feed, pytest.raises(MemoryError, match="bytes left"):
        next(feed)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_closing_inside_an_epoch_ends_all_threads_and_keeps_received_batches(framework, taken):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    expected = host_batches(pipeline)[0][:taken]
    with feed_of(pipeline, framework) as feed:
        kept = list(islice(feed, taken))
    assert feed_threads() == []
    actual = read_all(framework, kept) if kept else []
    assert [batch["x"].tolist() for batch in actual] == [batch["x"].tolist() for batch in expected]
    del kept


def test_closing_during_page_locking_leaves_no_page_locked(framework):
    data = {"x": random_rows(400, 1000, "u1")}
    first, locking, resume = data["x"].ctypes.data, threading.Event(), threading.Event()

    def before_lock(address, nbytes):
        if first <= address < first + 400_000:
            locking.set()
            resume.wait(60)

    framework.gpu.before_lock = before_lock
    feed = feed_of(fb.from_arrays(data).batch(8), framework)
    next(feed)
    assert locking.wait(60)
    closing = threading.Thread(target=feed.close)
    closing.start()
    resume.set()
    closing.join(60)
    assert feed_threads() == []
    assert framework.gpu.locked == {}


def test_batches_that_the_consumer_keeps_do_not_change(framework):
    pipeline = fb.from_arrays({"x": random_rows(600, 100, "u1")}).shuffle(seed=1).batch(8)
    expected = host_batches(pipeline, 2)
    with feed_of(pipeline, framework, resident="never") as feed:
        kept = [list(feed), list(feed)]
    assert_same(read_all(framework, kept[0]), expected[0])
    assert_same(read_all(framework, kept[1]), expected[1])
    del kept


def test_a_new_iteration_inside_an_epoch_is_the_next_epoch(framework):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    with feed_of(pipeline, framework) as feed:
        for number in range(4):
            assert_same(read_all(framework, islice(feed, 3 + number)), host_epoch(pipeline, number)[: 3 + number])


def test_a_loaded_state_continues_with_the_same_batches(framework):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    with feed_of(pipeline, framework) as feed:
        read_all(framework, islice(feed, 7))
        state = feed.state_dict()
    with feed_of(pipeline, framework) as feed:
        feed.load_state_dict(state)
        assert_same(read_all(framework, feed), host_batches(pipeline)[0][7:])
