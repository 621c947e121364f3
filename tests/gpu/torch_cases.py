"""PyTorch on a GPU: CUDA graph captures during a feed, low memory, and `EngineTests`.

test_feed.py runs this file in its own process, because frameworks conflict in one process.
"""

import threading
from collections import deque

import numpy as np
import pytest
import torch
from tests.gpu.frameworks import FACTOR, Torch, stamp_rows

import forebay as fb
from forebay.adapters.handoff.torch import TorchDeviceHandOff
from forebay.engines.cuda.engine import CudaEngine
from forebay.testing import EngineTests


class TestCudaEngine(EngineTests):
    to = "torch"

    def make_engine(self):
        return CudaEngine(TorchDeviceHandOff(0))

    def read(self, array):
        return array.cpu().numpy()

    def address(self, leaf):
        return leaf.data_ptr()


@pytest.fixture(scope="module")
def framework():
    return Torch()


def take_in_background(stop, pipeline, taken, failures, **options):
    """Take batches and do nothing else: graph captures would fail if PyTorch allocated memory on this thread."""
    try:
        with pipeline.feed("torch", device="cuda", **options) as feed, torch.cuda.stream(torch.cuda.Stream()):
            iterator = iter(feed)
            while not stop.is_set():
                taken.append(next(iterator))
    except BaseException as error:
        failures.append(error)


@pytest.mark.parametrize("resident", ["never", "always"])
def test_a_feed_does_not_break_graph_captures(framework, resident):
    stop, failures, taken, before = threading.Event(), [], deque(maxlen=3), framework.errors()
    pipeline = fb.from_arrays(stamp_rows(60_000)).shuffle(seed=2).batch(500).repeat()
    feeding = threading.Thread(
        target=take_in_background, args=(stop, pipeline, taken, failures), kwargs={"resident": resident}
    )
    feeding.start()
    held = torch.zeros(1000, device="cuda")
    for mode in ("global", "thread_local", "relaxed") * 20:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            for _ in range(50):
                held += 1
        graph.replay()
    stop.set()
    feeding.join()
    torch.cuda.synchronize()
    for batch in taken:
        framework.check(batch)
    assert not failures
    assert len(taken) == 3
    assert held[0] == 50 * 60
    assert framework.errors() == before


def test_two_threads_with_their_own_streams_get_complete_batches(framework):
    before, failures = framework.errors(), []
    pipeline = fb.from_arrays(stamp_rows(60_000)).shuffle(seed=2).batch(97).repeat(3)
    with pipeline.feed("torch", device="cuda", resident="never", device_bytes="8MiB") as feed:
        iterator = iter(feed)

        def take(number, wrong):
            try:
                with torch.cuda.stream(framework.streams[number]):
                    for batch in iterator:
                        torch.cuda._sleep(2_000_000)
                        expected = batch["row"][:, None] * FACTOR + framework.columns
                        wrong += (batch["x"] != expected).sum()
            except BaseException as error:
                failures.append(error)

        counts = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in range(2)]
        torch.cuda.synchronize()
        threads = [threading.Thread(target=take, args=(number + 1, counts[number])) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    torch.cuda.synchronize()
    assert not failures
    assert [int(count) for count in counts] == [0, 0]
    assert framework.errors() == before


def test_memory_of_a_closed_feed_is_not_reused_too_early(framework):
    side, wrong = framework.streams[1], torch.zeros((), dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for seed in range(6):
            with fb.from_arrays(stamp_rows(20_000)).shuffle(seed=seed).batch(500).feed("torch", device="cuda") as feed:
                for batch in feed:
                    torch.cuda._sleep(3_000_000)
                    expected = batch["row"][:, None] * FACTOR + framework.columns
                    wrong += (batch["x"] != expected).sum()
                del batch
    torch.cuda.synchronize()
    assert int(wrong) == 0


def test_a_batch_may_be_taken_while_the_same_thread_captures(framework):
    with fb.from_arrays(stamp_rows(5_000)).shuffle(seed=2).batch(100).feed("torch", device="cuda") as feed:
        iterator = iter(feed)
        next(iterator)
        held, graph, seen = torch.zeros(10, device="cuda"), torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            held += 1
            seen.extend(next(iterator) for _ in range(12))
            held += 1
        graph.replay()
        for batch in [*seen, *iterator]:
            framework.check(batch)
        assert held[0] == 2
    assert framework.errors() == 0


@pytest.mark.filterwarnings("ignore")  # warnings of the compiler
def test_a_step_compiled_with_graphs_gets_every_batch(framework):
    step = torch.compile(lambda x: (x % 251).float().sum(), mode="reduce-overhead")
    data = stamp_rows(20_000)
    with fb.from_arrays(data).batch(400).feed("torch", device="cuda", resident="never") as feed:
        for _ in range(3):
            for at, batch in enumerate(feed):
                torch.compiler.cudagraph_mark_step_begin()
                assert float(step(batch["x"])) == (data["x"][at * 400 : at * 400 + 400] % 251).sum()


def test_a_feed_works_while_most_device_memory_is_allocated(framework):
    free, _ = torch.cuda.mem_get_info()
    occupied = torch.empty(min(125 * 10**9, free - 3 * 10**9), dtype=torch.uint8, device="cuda")
    data = {"x": np.random.default_rng(0).integers(0, 255, (2_000, 150_528), dtype=np.uint8)}
    with fb.from_arrays(data).shuffle(seed=0).batch(64).feed("torch", device="cuda") as feed:
        order = fb.from_arrays(data).shuffle(seed=0).batch(64).feed("numpy")
        assert all(np.array_equal(batch["x"].cpu().numpy(), host["x"]) for batch, host in zip(feed, order, strict=True))
    del occupied


def test_missing_memory_for_resident_rows_is_reported_and_rows_are_pulled(framework, monkeypatch):
    monkeypatch.setattr(TorchDeviceHandOff, "available", lambda self, free, total: total)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    occupied = torch.empty(free - 10**9, dtype=torch.uint8, device="cuda")
    data = {"x": np.zeros((40_000, 50_000), np.uint8)}
    with (
        fb.from_arrays(data)
        .shuffle(seed=0)
        .batch(100)
        .feed("torch", device="cuda", resident="always", device_bytes="2700MiB") as feed
    ):
        for _ in range(20):  # enough epochs to finish the page-locks and to request memory for resident rows
            assert sum(1 for _ in feed) == 400
        assert "pulls rows from the host in every epoch" in feed.explain()
    del occupied
    torch.cuda.empty_cache()
