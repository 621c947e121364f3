"""Feeds of a device, with all of the CUDA engine but the GPU: every batch is the host's, whatever runs when."""

import itertools
import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_cuda import (
    KERNELS,
    PACES,
    TELLING,
    Holding,
    Marking,
    Telling,
    own_threads,
    plain_cuda,
    prepared,
)

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import CudaMemory

KINDS = [Telling, Marking, Holding]
DTYPES = ["u1", "i2", "f4", "f8", "c16", "?", "M8[s]", "S5"]
RNG = np.random.default_rng(0)


@pytest.fixture(
    params=[(kind, pace) for kind in KINDS for pace in PACES], ids=lambda made: f"{made[0].__name__}-{made[1]}"
)
def side(request):
    kind, pace = request.param
    with plain_cuda(kind=kind, pace=pace) as made:
        yield made


def feed_of(pipeline, side, **options):
    return pipeline.feed("numpy", device=CudaEngine(side), **options)


def host_batches(pipeline, epochs=1):
    return [host_epoch(pipeline, number) for number in range(epochs)]


def host_epoch(pipeline, number):
    with pipeline.feed("numpy", device="cpu") as feed:
        feed.set_epoch(number)
        return [{name: leaf.copy() for name, leaf in named(batch).items()} for batch in feed]


def named(batch):
    return batch if isinstance(batch, dict) else {"": batch}


def read_all(side, batches):
    return [{name: side.read(leaf) for name, leaf in named(batch).items()} for batch in batches]


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in other)
        assert all(one[name].dtype == other[name].dtype and one[name].shape == other[name].shape for name in other)


def assert_feeds_the_hosts(pipeline, side, *, epochs=3, **options):
    """All batches, some of them staged before everything is page-locked, the rest fetched; what `explain()` told."""
    expected = host_batches(pipeline, epochs)
    with feed_of(pipeline, side, **options) as feed:
        assert feed.plan.transport is not None
        for batches in expected:
            epoch = iter(feed)
            found = read_all(side, islice(epoch, 1))
            prepared()
            assert_same(found + read_all(side, epoch), batches)
        return feed.explain()


def random_rows(rows, length, dtype, *, apart=0, offset=0):
    """Random bytes as rows, with a gap behind each, beginning some bytes from where memory was aligned."""
    row_nbytes = length * np.dtype(dtype).itemsize
    stride = row_nbytes + apart
    raw = RNG.integers(0, 2 if dtype == "?" else 120, rows * stride + offset, dtype=np.uint8)
    return np.ndarray((rows, length), dtype, buffer=raw, offset=offset, strides=(stride, np.dtype(dtype).itemsize))


def aligned_rows(rows, row_nbytes):
    raw = random_rows(rows + 1, row_nbytes, "u1").reshape(-1)
    start = -raw.ctypes.data % 16
    return raw[start : start + rows * row_nbytes].reshape(rows, row_nbytes)


leaves = st.tuples(
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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(3, 150), st.lists(leaves, min_size=1, max_size=3), orders, st.integers(1, 20),
    st.sampled_from(["never", "always", "auto"]), st.sampled_from(KINDS), st.sampled_from(PACES),
    st.integers(0, 9), st.booleans(),
)  # fmt: skip
def test_every_batch_is_the_hosts(rows, leaves, order, batch, resident, kind, pace, seed, at_once):
    data = {
        f"leaf{number}": random_rows(rows, length, dtype, apart=apart, offset=offset)
        for number, (length, dtype, apart, offset) in enumerate(leaves)
    }
    pipeline = order(fb.from_arrays(data)).batch(batch)
    with plain_cuda(kind=kind, pace=pace, seed=seed, at_once=at_once) as side:
        assert_feeds_the_hosts(pipeline, side, epochs=2, resident=resident)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(200, 2000), st.integers(1, 300), st.integers(0, 900_000), st.sampled_from(PACES))
def test_what_fits_into_device_bytes_stays_there_and_the_rest_crosses(rows, row_nbytes, more, pace):
    pipeline = fb.from_arrays({"x": random_rows(rows, row_nbytes, "u1")}).shuffle(seed=1).batch(16)
    with plain_cuda(pace=pace) as side:
        assert_feeds_the_hosts(pipeline, side, epochs=2, device_bytes=150_000 + more)


def test_part_of_the_rows_stays_where_not_all_fit(side):
    pipeline = fb.from_arrays({"x": random_rows(1000, 512, "u1")}).shuffle(seed=1).batch(16)
    assert "part resident" in assert_feeds_the_hosts(pipeline, side, device_bytes=500_000)


def test_rows_are_fetched_by_dma_by_kernels_and_in_the_order_of_their_addresses(side):
    data = {"large": random_rows(200, 3000, "u1"), "wide": random_rows(200, 4, "f4"), "odd": random_rows(200, 7, "u1")}
    told = assert_feeds_the_hosts(fb.from_arrays(data).shuffle(seed=1).batch(16), side, resident="never")
    assert "pull" in told
    assert side.machine.copied > 200
    assert set(KERNELS) - {"gather_wide", "gather_bulk", "narrow_numbers"} <= set(side.machine.launched)


def test_a_process_of_one_cpu_issues_no_dma_for_a_row_and_its_own_thread_fills():
    pipeline = fb.from_arrays({"large": aligned_rows(200, 3008)}).shuffle(seed=1).batch(16)
    with plain_cuda(few_cores=10**6) as side:
        assert "one CPU" in assert_feeds_the_hosts(pipeline, side, epochs=2, resident="never")
        assert "gather_wide" in side.machine.launched
        assert side.machine.copied < 100  # of those that were staged at first


def test_where_many_copies_are_not_one_call_kernels_fetch_large_rows_and_it_is_told():
    pipeline = fb.from_arrays({"large": random_rows(200, 3000, "u1")}).shuffle(seed=1).batch(16)
    with plain_cuda(at_once=False) as side:
        assert "one DMA a call" in assert_feeds_the_hosts(pipeline, side, resident="never")
        assert "gather_any" in side.machine.launched


def test_rows_of_sixteen_bytes_or_multiples_are_read_so_where_they_lie_so(side):
    pipeline = fb.from_arrays({"x": aligned_rows(200, 48)}).shuffle(seed=1).batch(16)
    assert_feeds_the_hosts(pipeline, side, resident="always")
    assert "gather_wide" in side.machine.launched
    assert "gather_any" not in side.machine.launched


@pytest.mark.parametrize(("capability", "kernel"), [((9, 0), "gather_bulk"), ((8, 6), "gather_wide")])
def test_long_rows_on_the_device_are_gathered_by_bulk_copies_where_it_has_them(capability, kernel):
    pipeline = fb.from_arrays({"x": aligned_rows(60, 20_000)}).shuffle(seed=1).batch(7)
    with plain_cuda(capability=capability) as side:
        assert_feeds_the_hosts(pipeline, side, epochs=3, resident="always")
        assert side.machine.launched[-1] == kernel


def test_long_rows_that_cannot_be_read_sixteen_bytes_at_a_time_are_gathered_without_bulk_copies(side):
    pipeline = fb.from_arrays({"x": random_rows(60, 20_001, "u1")}).shuffle(seed=1).batch(7)
    assert_feeds_the_hosts(pipeline, side, epochs=3, resident="always")
    assert "gather_bulk" not in side.machine.launched


def test_rows_of_several_files_are_the_hosts(side, tmp_path):
    for number, rows in enumerate((70, 1, 33, 120)):
        np.save(tmp_path / f"{number}.npy", random_rows(rows, 90, "f4"))
    files = fb.from_files(str(tmp_path / "*.npy"))
    assert len(files.batch(9).feed("numpy", device="cpu")) == 25
    for resident in ("never", "always"):
        assert_feeds_the_hosts(files.batch(9), side, resident=resident)
        assert_feeds_the_hosts(files.shuffle(seed=4).batch(9), side, resident=resident)


def test_arrays_too_small_for_a_page_are_the_hosts_and_may_change(side):
    data = {"x": np.arange(30, dtype="i4")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(4)
    with feed_of(pipeline, side, resident="never") as feed:
        next(feed)
        prepared()
        for number in range(3):
            data["x"][...] = np.arange(30) + 100 * number
            feed.set_epoch(number)
            assert_same(read_all(side, feed), host_epoch(pipeline, number))


def test_an_array_that_was_changed_between_epochs_crosses_again(side):
    data = {"x": random_rows(400, 100, "u1")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(16)
    with feed_of(pipeline, side, resident="always") as feed:
        next(feed)
        prepared()
        data["x"][...] += 120
        feed.set_epoch(1)
        assert_same(read_all(side, feed), host_epoch(pipeline, 1))
        assert "was changed since it was uploaded" in feed.explain()


def test_slots_are_filled_one_after_the_other_while_all_rows_are_on_the_device_and_only_then(side):
    data = {"x": random_rows(400, 100, "u1")}
    with feed_of(fb.from_arrays(data).shuffle(seed=1).batch(8), side, resident="always") as feed:

        def streams():
            read_all(side, feed)
            return {slot.memory.stream for slot in feed._runner._slots.values()}

        next(feed)
        prepared()
        for _ in range(5):
            read_all(side, feed)
        assert len(streams()) == 1
        data["x"][...] += 120
        for _ in range(5):
            read_all(side, feed)
        assert len(streams()) == 2


def test_where_page_locks_are_refused_rows_are_staged_and_it_is_told(side):
    data = {"x": random_rows(400, 100, "u1")}
    first = data["x"].ctypes.data
    side.machine.refuse_lock = lambda address, nbytes: first <= address < first + 40_000
    told = assert_feeds_the_hosts(fb.from_arrays(data).shuffle(seed=1).batch(16), side, resident="never")
    assert "refused" in told
    assert "staged instead" in told
    assert side.machine.launched == []


def test_where_the_device_has_no_room_after_all_rows_cross_and_it_is_told(side):
    side.refuse = lambda nbytes: nbytes >= 50_000
    pipeline = fb.from_arrays({"x": random_rows(700, 100, "u1")}).shuffle(seed=1).batch(8)
    assert "rows cross every epoch" in assert_feeds_the_hosts(pipeline, side, resident="always")


def test_where_slots_find_no_room_the_consumer_is_told(side):
    side.refuse = lambda nbytes: True
    pipeline = fb.from_arrays({"x": random_rows(100, 10, "u1")}).batch(8)
    with feed_of(pipeline, side) as feed, pytest.raises(MemoryError, match="bytes left"):
        next(feed)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_closing_in_mid_epoch_leaves_nothing_behind(side, taken):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    expected = host_batches(pipeline)[0][:taken]
    with feed_of(pipeline, side) as feed:
        kept = list(islice(feed, taken))
    assert own_threads() == []
    found = read_all(side, kept) if kept else []
    assert [batch["x"].tolist() for batch in found] == [batch["x"].tolist() for batch in expected]
    del kept


def test_closing_while_pages_are_locked_leaves_none_locked(side):
    data = {"x": random_rows(400, 1000, "u1")}
    first, locking, go_on = data["x"].ctypes.data, threading.Event(), threading.Event()

    def before_lock(address, nbytes):
        if first <= address < first + 400_000:
            locking.set()
            go_on.wait(60)

    side.machine.before_lock = before_lock
    feed = feed_of(fb.from_arrays(data).batch(8), side)
    next(feed)
    assert locking.wait(60)
    closing = threading.Thread(target=feed.close)
    closing.start()
    go_on.set()
    closing.join(60)
    assert own_threads() == []
    assert side.machine.locked == {}


def test_batches_that_are_kept_keep_their_content(side):
    pipeline = fb.from_arrays({"x": random_rows(600, 100, "u1")}).shuffle(seed=1).batch(8)
    expected = host_batches(pipeline, 2)
    with feed_of(pipeline, side, resident="never") as feed:
        kept = [list(feed), list(feed)]
    assert_same(read_all(side, kept[0]), expected[0])
    assert_same(read_all(side, kept[1]), expected[1])
    del kept


def test_a_new_iteration_in_mid_epoch_is_the_next_epoch(side):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    with feed_of(pipeline, side) as feed:
        for number in range(4):
            assert_same(read_all(side, islice(feed, 3 + number)), host_epoch(pipeline, number)[: 3 + number])


def test_a_state_goes_on_with_the_same_tail(side):
    pipeline = fb.from_arrays({"x": random_rows(400, 100, "u1")}).shuffle(seed=1).batch(8)
    with feed_of(pipeline, side) as feed:
        read_all(side, islice(feed, 7))
        state = feed.state_dict()
    with feed_of(pipeline, side) as feed:
        feed.load_state_dict(state)
        assert_same(read_all(side, feed), host_batches(pipeline)[0][7:])


# A slot is not filled before what its consumer queued has run


def queue_reads(side, feed, *, streams=(0,), epochs=2):
    """A read of every batch, queued and not waited for; the batch is dropped at once."""
    turns, seen = itertools.cycle(streams), []
    for _ in range(epochs):
        epoch = iter(feed)
        while True:
            with side.using(next(turns)):
                batch = next(epoch, None)
                if batch is None:
                    break
                seen.append({name: side.queue_read(leaf) for name, leaf in batch.items()})
                del batch
        prepared()
    return seen


def two_leaves():
    data = {"x": random_rows(800, 100, "u1"), "y": random_rows(800, 2000, "u1")}
    return fb.from_arrays(data).shuffle(seed=1).batch(8)


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("streams", [(0,), (1, 2), (3, 0, 4)])
def test_work_that_a_consumer_has_queued_sees_its_own_batch(side, resident, streams):
    pipeline = two_leaves()
    with feed_of(pipeline, side, resident=resident) as feed:
        seen = queue_reads(side, feed, streams=streams)
        side.synchronize()
    assert_same(seen, list(itertools.chain(*host_batches(pipeline, 2))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fill_that_did_not_wait_would_be_seen(kind, monkeypatch):
    monkeypatch.setattr(CudaMemory, "wait_for_release", lambda memory: None)
    pipeline = two_leaves()
    with plain_cuda(kind=kind, pace="early") as side, feed_of(pipeline, side, resident="never") as feed:
        seen = queue_reads(side, feed)
        side.synchronize()
        expected = list(itertools.chain(*host_batches(pipeline, 2)))
        assert any(one["x"].tobytes() != other["x"].tobytes() for one, other in zip(seen, expected, strict=True))


@pytest.mark.parametrize("pace", PACES)
def test_two_threads_on_streams_of_their_own_share_an_epoch(pace):
    pipeline = fb.from_arrays({"row": np.arange(4000)}).shuffle(seed=1).batch(8)
    with plain_cuda(pace=pace) as side, feed_of(pipeline, side, resident="never") as feed:
        epoch, seen = iter(feed), []

        def take(stream):
            with side.using(stream):
                for batch in epoch:
                    seen.append(side.queue_read(batch["row"]))
                    del batch

        threads = [threading.Thread(target=take, args=(stream,)) for stream in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        side.synchronize()
        assert sorted(np.concatenate(seen).tolist()) == list(range(4000))


@pytest.mark.parametrize("pace", PACES)
def test_batches_taken_while_a_stream_captures_have_arrived_and_are_not_filled_again(pace):
    pipeline = two_leaves()
    with plain_cuda(pace=pace) as side, feed_of(pipeline, side) as feed, side.using(1):
        epoch = iter(feed)
        with side.capturing():
            captured = [{name: leaf.copy() for name, leaf in batch.items()} for batch in islice(epoch, 60)]
        assert_same(captured + read_all(side, epoch), host_batches(pipeline)[0])


def test_the_pool_is_told_of_every_stream_that_takes_a_batch():
    with plain_cuda() as side, feed_of(two_leaves(), side) as feed:
        queue_reads(side, feed, streams=(1, 2), epochs=1)
        side.synchronize()
        assert set(side.kept_for) == {TELLING + 1, TELLING + 2}


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("pace", PACES)
def test_batches_that_wait_for_their_turn_on_the_device_take_no_slots_beyond_the_plan(resident, pace):
    data = random_rows(64, 4000, "f4")
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    with plain_cuda(kind=Holding, pace=pace) as side, feed_of(pipeline, side, resident=resident) as feed:
        taken = []
        side.refuse = lambda nbytes: taken.append(sum(side.machine.memory.values()) + nbytes)
        found = [side.queue_read(batch) for _ in range(30) for batch in feed]
        side.synchronize()
        expected = [batch for epoch in host_batches(pipeline, 30) for batch in epoch]
        assert_same([{"": array} for array in found], expected)
        assert max(taken) <= feed.plan.transport.device_nbytes
