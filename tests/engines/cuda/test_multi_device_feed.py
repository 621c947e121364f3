"""Feeds for several devices of one process: rows, states, faults and page-locks.

No machine of this project has two GPUs. The devices are those of the fake driver, each with its own memory, queues and
pace; a driver call while the other device is current is a fault.
"""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import KINDS, as_dict, host_epoch, random_rows
from tests.support.fake_cuda import PACES, StreamFramework, fake_gpus, wait_until_located
from tests.support.profiles import FEW_EXAMPLES

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.errors import DeviceMemoryError, FeedError, PipelineError

DATA = {"x": random_rows(400, 100, "u1"), "row": np.arange(400, dtype=np.int32)}


class Device:
    """A device object whose text is its name, such as a `torch.device`."""

    def __init__(self, name):
        self._name = name

    def __str__(self):
        return self._name


def make_pipeline(batch=8, **options):
    return fb.from_arrays(DATA).shuffle(seed=1).batch(batch, **options)


def open_feed(pipeline, frameworks, **options):
    return pipeline.feed("numpy", device=tuple(map(CudaEngine, frameworks)), **options)


def read_parts(frameworks, batch):
    """Return the part of each device as host arrays."""
    return [
        {name: framework.read(leaf) for name, leaf in as_dict(part).items()}
        for framework, part in zip(frameworks, batch, strict=True)
    ]


def interleave(parts):
    """Return the batch of which the devices got every n-th row."""
    joined = {}
    for name in parts[0]:
        joined[name] = np.empty(
            (sum(len(part[name]) for part in parts), *parts[0][name].shape[1:]), parts[0][name].dtype
        )
        for number, part in enumerate(parts):
            joined[name][number :: len(parts)] = part[name]
    return joined


def read_epoch(frameworks, feed):
    return [interleave(read_parts(frameworks, batch)) for batch in feed]


def assert_equal(actual, expected):
    assert len(actual) == len(expected) > 0
    for one, other in zip(actual, expected, strict=True):
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("resident", ["always", "never"])
def test_the_parts_of_all_devices_are_the_batches_of_one_device(kind, pace, resident):
    pipeline = make_pipeline()
    with fake_gpus(2, kind=kind, pace=pace) as frameworks, open_feed(pipeline, frameworks, resident=resident) as feed:
        assert len(feed) == 50
        for epoch in range(3):
            assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, epoch))
            wait_until_located()


@settings(FEW_EXAMPLES)
@given(
    st.integers(1, 4),
    st.integers(20, 300),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from(KINDS),
    st.sampled_from(PACES),
)
def test_any_number_of_devices_and_shards_gives_no_row_twice(devices, rows, part_rows, shards, kind, pace):
    assume(rows // (shards + 1) >= devices * part_rows)  # batch() refuses to drop all rows of a shard
    data = np.arange(rows, dtype=np.int32)
    seen = []
    for shard in range(shards + 1):
        pipeline = fb.from_arrays({"row": data}).shuffle(seed=2).shard(shard, shards + 1)
        pipeline = pipeline.batch(devices * part_rows, drop_remainder=True)
        with fake_gpus(devices, kind=kind, pace=pace) as frameworks, open_feed(pipeline, frameworks) as feed:
            assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 0))
            seen += [row for batch in read_epoch(frameworks, feed) for row in batch["row"].tolist()]
    assert len(set(seen)) == len(seen)


def count_locks(devices):
    """Return how many page-locks the source has while this many devices pull rows from it."""
    start = DATA["x"].ctypes.data
    with fake_gpus(devices) as frameworks, open_feed(make_pipeline(12), frameworks, resident="never") as feed:
        next(feed)
        wait_until_located()
        locked = frameworks[0].gpu.locked
        assert all(framework.gpu.locked is locked for framework in frameworks)
        return sum(start <= address < start + DATA["x"].nbytes for address in list(locked))


def test_all_devices_share_one_page_lock():
    assert count_locks(3) == count_locks(1) > 0


def test_a_state_fits_any_number_of_devices():
    pipeline = make_pipeline(12)
    with fake_gpus(3) as frameworks:
        expected = host_epoch(pipeline, 0)[5:]
        with open_feed(pipeline, frameworks) as feed:
            assert len(read_epoch(frameworks, itertools.islice(feed, 5))) == 5
            state = feed.state_dict()
        for count in (1, 2, 3):
            with open_feed(pipeline, frameworks[:count]) as feed:
                feed.load_state_dict(state)
                assert_equal(read_epoch(frameworks[:count], feed), expected)
        with pipeline.feed("numpy", device="cpu") as feed:
            feed.load_state_dict(state)
            assert_equal(list(feed), expected)


def test_no_row_is_lost_if_one_device_fails(monkeypatch):
    pipeline = make_pipeline()
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks, resident="never") as feed:
        next(feed)
        with monkeypatch.context() as patch:
            patch.setattr(feed.feeds[1]._runner, "take", fail)
            with pytest.raises(OSError, match="the disk is gone"):
                list(feed)
        assert [each.state_dict()["batches"] for each in feed.feeds] == [1, 0]
        state = feed.state_dict()
        assert (state["epoch"], state["batches"]) == (1, 0)
        feed.load_state_dict(state)
        assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 1))


@pytest.mark.parametrize("failing", [0, 1])
def test_after_an_error_the_next_epoch_begins_on_all_devices(monkeypatch, failing):
    pipeline = make_pipeline()
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks, resident="never") as feed:
        with monkeypatch.context() as patch:
            patch.setattr(feed.feeds[failing]._runner, "take", fail)
            with pytest.raises(OSError, match="the disk is gone"):
                next(feed)
        assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 1))


def test_an_interrupted_iterator_returns_no_parts_of_two_batches(monkeypatch):
    pipeline = make_pipeline()
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks) as feed:
        epoch = iter(feed)
        interrupted = epoch._epochs[1]
        with monkeypatch.context() as patch:
            patch.setattr(epoch, "_epochs", [epoch._epochs[0], Interrupted(interrupted)])
            with pytest.raises(KeyboardInterrupt):
                next(epoch)
        with pytest.raises(FeedError, match="has ended"):
            next(epoch)
        assert feed.state_dict()["batches"] == 0
        assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 1))


class Interrupted:
    """An epoch during which the user presses Ctrl-C."""

    def __init__(self, epoch):
        self.close = epoch.close

    def __next__(self):
        raise KeyboardInterrupt


def fail(generation):
    raise OSError("the disk is gone")


def test_next_takes_one_batch_after_the_other():
    pipeline = make_pipeline(40)
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks) as feed:
        batches = [interleave(read_parts(frameworks, next(feed))) for _ in range(10)]
        with pytest.raises(StopIteration):
            next(feed)
        assert_equal(batches, host_epoch(pipeline, 0))
        assert_equal([interleave(read_parts(frameworks, next(feed)))], host_epoch(pipeline, 1)[:1])


def test_set_epoch_moves_all_devices():
    pipeline = make_pipeline(40)
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks) as feed:
        feed.set_epoch(7)
        assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 7))


def test_maps_and_their_random_numbers_are_those_of_one_device():
    def add(row, rng):
        return {"x": row["x"], "row": row["row"] + rng.integers(1000, dtype=np.int32)}

    pipeline = fb.from_arrays(DATA).shuffle(seed=1).map(add, seed=3).batch(8)
    with fake_gpus(2) as frameworks, open_feed(pipeline, frameworks) as feed:
        assert_equal(read_epoch(frameworks, feed), host_epoch(pipeline, 0))


def test_statistics_have_each_device_and_the_sums():
    with fake_gpus(2) as frameworks, open_feed(make_pipeline(), frameworks) as feed:
        read_epoch(frameworks, feed)
        stats = feed.stats()
        assert (stats["rows"], stats["batches"], stats["errors"]) == (400, 50, 0)
        assert [device["rows"] for device in stats["devices"]] == [200, 200]
        assert feed.explain().count("device ") >= 2
        assert "MultiDeviceFeed(Feed(" in repr(feed)


def test_budgets_of_host_memory_are_divided():
    with fake_gpus(2) as frameworks, open_feed(make_pipeline(), frameworks, host_bytes="800MiB") as feed:
        assert [each._options.host_bytes for each in feed.feeds] == [400 << 20] * 2


@pytest.mark.parametrize(
    ("pipeline", "devices", "message"),
    [
        (make_pipeline(), (), "has no device"),
        (make_pipeline(), ("cuda:0", "cuda:0"), "has a device twice"),
        (make_pipeline(), ["cuda", "cuda:0"], "has a device twice"),
        (make_pipeline(), ("gpu:0", "cuda:0"), "has a device twice"),
        (make_pipeline(), (1, "cuda:1"), "has a device twice"),
        (make_pipeline(), ("cuda:01", "CUDA:1"), "has a device twice"),
        (make_pipeline(), (Device("cuda"), "cuda:0"), "has a device twice"),
        (make_pipeline(), ("mps", "mps:0"), "has a device twice"),
        (make_pipeline(), ("auto", "cuda:0"), "chooses one device"),
        (make_pipeline(9), ("cuda:0", "cuda:1"), "batches of 9 rows cannot be divided among 2 devices"),
        (fb.from_arrays(np.arange(9)).batch(2), ("cuda:0", "cuda:1"), "has no row for 1 of 2 devices"),
        (
            fb.from_generator(lambda: iter(np.arange(9))).batch(2),
            ("cuda:0", "cuda:1"),
            "of a fixed number of indexed rows",
        ),
    ],
    ids=[
        "none",
        "twice",
        "the default twice",
        "gpu",
        "index",
        "digits",
        "device",
        "mps",
        "auto",
        "uneven",
        "too few rows",
        "stream",
    ],
)
def test_devices_that_cannot_share_a_batch_are_refused(pipeline, devices, message):
    with pytest.raises(PipelineError, match=message):
        pipeline.feed("numpy", device=devices)


@pytest.mark.parametrize("to", ["keras", "loader"])
def test_trainers_take_one_device(to):
    with pytest.raises(PipelineError, match=rf"feed\('{to}'\) takes one device"):
        make_pipeline().feed(to, device=["cuda:0", "cuda:1"])


def test_memory_that_one_device_lacks_is_an_error():
    with fake_gpus(2) as frameworks:
        frameworks[1].refuse = lambda nbytes: True
        with open_feed(make_pipeline(), frameworks) as feed, pytest.raises(DeviceMemoryError):
            next(feed)


def test_one_device_in_a_tuple_gives_tuples_with_one_part():
    with fake_gpus(1, kind=StreamFramework) as frameworks, open_feed(make_pipeline(), frameworks) as feed:
        assert len(next(feed)) == 1
