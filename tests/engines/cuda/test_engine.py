"""The CUDA engine on a fake driver: waits between streams, and reclaimed slots."""

import numpy as np
import pytest
from tests.support.fake_cuda import FIRST_CONSUMER_STREAM, PACES, MarkerFramework, StreamFramework, fake_cuda

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout
from forebay.engines.cuda.engine import CudaEngine
from forebay.testing import EngineTests

LAYOUT = Layout.of((ArraySpec((64,), np.dtype("u1")),), batch_rows=2, batches=2, alignment=DEVICE_ALIGNMENT)


class FakeCudaTests(EngineTests):
    kind = StreamFramework

    @pytest.fixture(autouse=True, params=PACES)
    def fake_driver(self, request):
        with fake_cuda(kind=self.kind, pace=request.param) as self.framework:
            yield
            del self.made

    def make_engine(self):
        self.made = CudaEngine(self.framework)
        return self.made

    def read(self, array):
        self.framework.read(array)
        return array


class TestCudaEngineWithStreams(FakeCudaTests):
    pass


class TestCudaEngineWithMarkers(FakeCudaTests):
    kind = MarkerFramework


@pytest.fixture(params=[StreamFramework, MarkerFramework])
def kind(request):
    return request.param


@pytest.fixture(params=PACES)
def pace(request):
    return request.param


def fill(engine, memory, value):
    np.frombuffer(memory.host, np.uint8)[...] = value
    engine.send(memory)


def take_batch(engine, framework, memory, batch=0):
    """Take a batch and queue a read of it on the consumer's stream."""
    engine.hand_out(memory)
    (array,) = framework.hand_off([memory.root(LAYOUT, 0, batch)])
    return framework.queue_read(array)


def open_engine(framework):
    """Return an engine and the memory of one slot."""
    engine = CudaEngine(framework)
    return engine, engine.open_slot(LAYOUT.nbytes)


def close_engine(engine, memory):
    engine.close_slot(memory)
    engine.close()


def test_a_fill_waits_for_the_work_that_the_consumer_queued(kind, pace):
    with fake_cuda(kind=kind, pace=pace) as framework:
        engine, memory = open_engine(framework)
        seen = []
        for value in range(1, 6):
            engine.wait_host_free(memory)
            fill(engine, memory, value)
            engine.await_arrival(memory)
            seen.append(take_batch(engine, framework, memory))
            assert engine.reclaim([memory])
        framework.synchronize()
        assert [set(array.ravel().tolist()) for array in seen] == [{1}, {2}, {3}, {4}, {5}]
        close_engine(engine, memory)
        del memory


def test_a_fill_waits_for_every_stream_that_took_a_batch(pace):
    with fake_cuda(pace=pace) as framework:
        engine, memory = open_engine(framework)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with framework.using(1):
            first = take_batch(engine, framework, memory, 0)
        with framework.using(2):
            second = take_batch(engine, framework, memory, 1)
        assert engine.reclaim([memory])
        engine.wait_host_free(memory)
        fill(engine, memory, 2)
        with engine.device:
            memory.arrival_event.wait()
        assert set(first.ravel().tolist()) | set(second.ravel().tolist()) == {1}
        assert framework.recorded_streams == [FIRST_CONSUMER_STREAM + 1, FIRST_CONSUMER_STREAM + 2]
        close_engine(engine, memory)
        del memory


def test_no_slot_is_reclaimed_while_a_stream_captures(pace):
    with fake_cuda(pace=pace) as framework:
        engine, memory = open_engine(framework)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with framework.using(1):
            seen = take_batch(engine, framework, memory)
            with framework.capturing():
                assert not engine.reclaim([memory])
            assert memory.consumer_streams.keys() == {FIRST_CONSUMER_STREAM + 1}
            assert engine.reclaim([memory])
        assert memory.consumer_streams == {}
        engine.wait_host_free(memory)
        fill(engine, memory, 2)
        framework.synchronize()
        assert set(seen.ravel().tolist()) == {1}
        close_engine(engine, memory)
        del memory


def test_a_stream_that_captures_on_another_thread_blocks_reclaim(pace):
    with fake_cuda(pace=pace) as framework:
        engine, memory = open_engine(framework)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with framework.using(1):
            take_batch(engine, framework, memory)
            with framework.capturing(), framework.using(2):
                assert not engine.reclaim([memory])
        close_engine(engine, memory)
        del memory


def test_rows_have_arrived_when_a_capturing_stream_takes_a_batch(pace):
    with fake_cuda(pace=pace) as framework:
        engine, memory = open_engine(framework)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with framework.using(1), framework.capturing():
            engine.hand_out(memory)
            (array,) = framework.hand_off([memory.root(LAYOUT, 0, 0)])
            assert set(array.ravel().tolist()) == {1}
        close_engine(engine, memory)
        del memory, array


def test_parts_of_a_slot_can_be_sent(kind, pace):
    with fake_cuda(kind=kind, pace=pace) as framework:
        engine, memory = open_engine(framework)
        fill(engine, memory, 1)
        engine.wait_host_free(memory)
        np.frombuffer(memory.host, np.uint8)[...] = 2
        engine.send(memory, [(256, 128)])
        engine.await_arrival(memory)
        first, second = (take_batch(engine, framework, memory, batch) for batch in (0, 1))
        framework.synchronize()
        assert set(first.ravel().tolist()) == {1}
        assert set(second.ravel().tolist()) == {2}
        close_engine(engine, memory)
        del memory


def test_allocate_waits_for_the_last_user_of_pool_memory(kind, pace):
    with fake_cuda(kind=kind, pace=pace) as framework:
        engine = CudaEngine(framework)
        pointer, owner = engine.allocate(1000)
        fresh = np.frombuffer((np.ctypeslib.ctypes.c_uint8 * 1024).from_address(pointer), np.uint8)
        fresh[...] = 7
        framework.synchronize()
        assert set(fresh.tolist()) == {7}
        assert framework.gpu.memory[pointer] == 1024
        del owner, fresh
        engine.close()
