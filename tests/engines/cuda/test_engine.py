"""The CUDA engine on a driver that is this process: what waits for what, and when a slot may be taken back."""

import numpy as np
import pytest
from tests.support.plain_cuda import PACES, TELLING, Marking, Telling, plain_cuda

from forebay.core.spec import DEVICE_ALIGNMENT, ArraySpec, Layout
from forebay.engines.cuda.engine import CudaEngine
from forebay.testing import EngineTests

LAYOUT = Layout.of((ArraySpec((64,), np.dtype("u1")),), batch_rows=2, batches=2, alignment=DEVICE_ALIGNMENT)


class OnPlainCuda(EngineTests):
    kind = Telling

    @pytest.fixture(autouse=True, params=PACES)
    def plain(self, request):
        with plain_cuda(kind=self.kind, pace=request.param) as self.side:
            yield
            del self.made

    def make_engine(self):
        self.made = CudaEngine(self.side)
        return self.made

    def read(self, array):
        self.side.read(array)
        return array


class TestCudaEngineWithStreams(OnPlainCuda):
    pass


class TestCudaEngineWithMarks(OnPlainCuda):
    kind = Marking


@pytest.fixture(params=[Telling, Marking])
def kind(request):
    return request.param


@pytest.fixture(params=PACES)
def pace(request):
    return request.param


def fill(engine, memory, value):
    np.frombuffer(memory.host, np.uint8)[...] = value
    engine.send(memory)


def taken(engine, side, memory, batch=0):
    """What a consumer gets to see of a slot, queued on its stream."""
    engine.lend(memory)
    (array,) = side.hand_off([memory.root(LAYOUT, 0, batch)])
    return side.queue_read(array)


def opened(side):
    engine = CudaEngine(side)
    return engine, engine.open_slot(LAYOUT.nbytes)


def closed(engine, memory):
    engine.close_slot(memory)
    engine.close()


def test_a_slot_is_filled_again_behind_what_its_consumer_queued(kind, pace):
    with plain_cuda(kind=kind, pace=pace) as side:
        engine, memory = opened(side)
        seen = []
        for value in range(1, 6):
            engine.await_host(memory)
            fill(engine, memory, value)
            engine.await_arrival(memory)
            seen.append(taken(engine, side, memory))
            assert engine.reclaim([memory])
        side.synchronize()
        assert [set(array.ravel().tolist()) for array in seen] == [{1}, {2}, {3}, {4}, {5}]
        closed(engine, memory)
        del memory


def test_a_slot_waits_for_every_stream_that_took_a_batch_of_it(pace):
    with plain_cuda(pace=pace) as side:
        engine, memory = opened(side)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with side.using(1):
            first = taken(engine, side, memory, 0)
        with side.using(2):
            second = taken(engine, side, memory, 1)
        assert engine.reclaim([memory])
        engine.await_host(memory)
        fill(engine, memory, 2)
        with engine.device:
            memory.arrived.wait()
        assert set(first.ravel().tolist()) | set(second.ravel().tolist()) == {1}
        assert side.kept_for == [TELLING + 1, TELLING + 2]
        closed(engine, memory)
        del memory


def test_nothing_is_taken_back_while_a_stream_captures(pace):
    with plain_cuda(pace=pace) as side:
        engine, memory = opened(side)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with side.using(1):
            seen = taken(engine, side, memory)
            with side.capturing():
                assert not engine.reclaim([memory])
            assert memory.used_on.keys() == {TELLING + 1}
            assert engine.reclaim([memory])
        assert memory.used_on == {}
        engine.await_host(memory)
        fill(engine, memory, 2)
        side.synchronize()
        assert set(seen.ravel().tolist()) == {1}
        closed(engine, memory)
        del memory


def test_a_stream_that_captures_on_another_thread_keeps_its_slots_too(pace):
    with plain_cuda(pace=pace) as side:
        engine, memory = opened(side)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with side.using(1):
            taken(engine, side, memory)
            with side.capturing(), side.using(2):
                assert not engine.reclaim([memory])
        closed(engine, memory)
        del memory


def test_rows_have_arrived_when_a_capturing_stream_takes_a_batch(pace):
    with plain_cuda(pace=pace) as side:
        engine, memory = opened(side)
        fill(engine, memory, 1)
        engine.await_arrival(memory)
        with side.using(1), side.capturing():
            engine.lend(memory)
            (array,) = side.hand_off([memory.root(LAYOUT, 0, 0)])
            assert set(array.ravel().tolist()) == {1}
        closed(engine, memory)
        del memory, array


def test_parts_of_a_slot_are_sent_alone(kind, pace):
    with plain_cuda(kind=kind, pace=pace) as side:
        engine, memory = opened(side)
        fill(engine, memory, 1)
        engine.await_host(memory)
        np.frombuffer(memory.host, np.uint8)[...] = 2
        engine.send(memory, [(256, 128)])
        engine.await_arrival(memory)
        first, second = (taken(engine, side, memory, batch) for batch in (0, 1))
        side.synchronize()
        assert set(first.ravel().tolist()) == {1}
        assert set(second.ravel().tolist()) == {2}
        closed(engine, memory)
        del memory


def test_memory_of_the_pool_is_had_only_when_its_last_user_is_done(kind, pace):
    with plain_cuda(kind=kind, pace=pace) as side:
        engine = CudaEngine(side)
        pointer, owner = engine.allocate(1000)
        fresh = np.frombuffer((np.ctypeslib.ctypes.c_uint8 * 1024).from_address(pointer), np.uint8)
        fresh[...] = 7
        side.synchronize()
        assert set(fresh.tolist()) == {7}
        assert side.machine.memory[pointer] == 1024
        del owner, fresh
        engine.close()
