"""A fill waits for the work that the consumer queued on its streams."""

import itertools
import threading
from itertools import islice

import numpy as np
import pytest
from tests.engines.cuda.pull.host_comparison import KINDS, assert_same, feed_of, host_batches, random_rows, read_all
from tests.support.fake_cuda import FIRST_CONSUMER_STREAM, PACES, ImportSyncFramework, fake_cuda, wait_until_located

import forebay as fb
from forebay.engines.cuda.memory import CudaMemory


def queue_reads(framework, feed, *, streams=(0,), epochs=2):
    """Queue a read of every batch and drop the batch at once."""
    turns, reads = itertools.cycle(streams), []
    for _ in range(epochs):
        epoch = iter(feed)
        while True:
            with framework.using(next(turns)):
                batch = next(epoch, None)
                if batch is None:
                    break
                reads.append({name: framework.queue_read(leaf) for name, leaf in batch.items()})
                del batch
        wait_until_located()
    return reads


def two_leaves():
    data = {"x": random_rows(800, 100, "u1"), "y": random_rows(800, 2000, "u1")}
    return fb.from_arrays(data).shuffle(seed=1).batch(8)


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("streams", [(0,), (1, 2), (3, 0, 4)])
def test_queued_work_of_the_consumer_reads_its_own_batch(every_framework, resident, streams):
    pipeline = two_leaves()
    with feed_of(pipeline, every_framework, resident=resident) as feed:
        reads = queue_reads(every_framework, feed, streams=streams)
        every_framework.synchronize()
    assert_same(reads, list(itertools.chain(*host_batches(pipeline, 2))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fill_that_does_not_wait_is_detected(kind, monkeypatch):
    monkeypatch.setattr(CudaMemory, "wait_for_release", lambda memory: None)
    pipeline = two_leaves()
    with fake_cuda(kind=kind, pace="early") as framework, feed_of(pipeline, framework, resident="never") as feed:
        reads = queue_reads(framework, feed)
        framework.synchronize()
        expected = list(itertools.chain(*host_batches(pipeline, 2)))
        assert any(one["x"].tobytes() != other["x"].tobytes() for one, other in zip(reads, expected, strict=True))


@pytest.mark.parametrize("pace", PACES)
def test_two_threads_with_their_own_streams_share_an_epoch(pace):
    pipeline = fb.from_arrays({"row": np.arange(4000)}).shuffle(seed=1).batch(8)
    with fake_cuda(pace=pace) as framework, feed_of(pipeline, framework, resident="never") as feed:
        epoch, reads = iter(feed), []

        def take(stream):
            with framework.using(stream):
                for batch in epoch:
                    reads.append(framework.queue_read(batch["row"]))
                    del batch

        threads = [threading.Thread(target=take, args=(stream,)) for stream in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        framework.synchronize()
        assert sorted(np.concatenate(reads).tolist()) == list(range(4000))


@pytest.mark.parametrize("pace", PACES)
def test_batches_taken_during_a_capture_have_arrived_and_are_not_refilled(pace):
    pipeline = two_leaves()
    with fake_cuda(pace=pace) as framework, feed_of(pipeline, framework) as feed, framework.using(1):
        epoch = iter(feed)
        with framework.capturing():
            captured = [{name: leaf.copy() for name, leaf in batch.items()} for batch in islice(epoch, 60)]
        assert_same(captured + read_all(framework, epoch), host_batches(pipeline)[0])


def test_every_stream_that_takes_a_batch_is_recorded_for_the_pool():
    with fake_cuda() as framework, feed_of(two_leaves(), framework) as feed:
        queue_reads(framework, feed, streams=(1, 2), epochs=1)
        framework.synchronize()
        assert set(framework.recorded_streams) == {FIRST_CONSUMER_STREAM + 1, FIRST_CONSUMER_STREAM + 2}


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("pace", PACES)
def test_queued_batches_use_no_more_memory_than_planned(resident, pace):
    data = random_rows(64, 4000, "f4")
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    with (
        fake_cuda(kind=ImportSyncFramework, pace=pace) as framework,
        feed_of(pipeline, framework, resident=resident) as feed,
    ):
        taken = []
        framework.refuse = lambda nbytes: taken.append(sum(framework.gpu.memory.values()) + nbytes)
        actual = [framework.queue_read(batch) for _ in range(30) for batch in feed]
        framework.synchronize()
        expected = [batch for epoch in host_batches(pipeline, 30) for batch in epoch]
        assert_same([{"": array} for array in actual], expected)
        assert max(taken) <= feed.plan.transport.device_nbytes
