"""Release of memory and page-locks: after errors, at close and at interpreter exit."""

import mmap
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import pytest
from tests.engines.cuda.pull.host_comparison import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.engines.cuda.pull.queueing import (
    TIMEOUT_SECONDS,
    ConsumerThread,
    PausedCall,
    make_shuffled,
    wait_until_idle,
    warm,
)
from tests.support.fake_cuda import MarkerFramework, fake_cuda, wait_until_located
from tests.support.paths import ROOT

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine, RunAheadLimit
from forebay.errors import DeviceError

pytestmark = pytest.mark.timeout(300)  # if an object is not released, a test would wait forever


def test_a_refused_page_lock_leaves_no_part_of_the_array_locked(framework):
    data = random_rows(400, 100, "u1")
    first, last = data.ctypes.data, data.ctypes.data + data.nbytes
    framework.gpu.refuse_lock = lambda address, nbytes: first + data.nbytes // 2 < address < last
    with feed_of(fb.from_arrays(data).batch(8), framework, resident="never") as feed:
        next(feed)
        wait_until_located()
        assert "refused" in feed.explain()
        assert not any(first - mmap.PAGESIZE < address < last for address in framework.gpu.locked)


def test_a_device_failure_at_close_leaves_the_array_unlocked(framework, monkeypatch):
    data = random_rows(400, 100, "u1")
    first, last = data.ctypes.data, data.ctypes.data + data.nbytes
    with feed_of(fb.from_arrays(data).batch(8), framework, resident="never") as feed:
        read_all(framework, [next(feed)])
        wait_until_located()
        wait_until_idle(feed)
        assert any(first <= address < last for address in framework.gpu.locked)
        with monkeypatch.context() as patch:
            patch.setattr(CudaEngine, "drain", fail_after(CudaEngine.drain))
            with pytest.raises(DeviceError, match="the device is lost"):
                feed._runner._filler.close()
        assert not any(first <= address < last for address in framework.gpu.locked)


# The last thread that uses the engine closes it, and gets the error. This may be a worker thread.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_device_failure_at_close_releases_all_memory(framework, monkeypatch):
    feed = feed_of(make_shuffled(), framework)
    read_all(framework, feed)
    monkeypatch.setattr(CudaEngine, "close", fail_after(CudaEngine.close))
    with suppress(DeviceError):
        feed.close()
    assert feed._runner._exchange.slots == {}
    assert framework.gpu.locked == {}


def fail_after(method):
    def failing(engine):
        method(engine)
        raise DeviceError("the device is lost")

    return failing


def test_a_batch_taken_late_is_complete_and_its_stream_is_recorded(monkeypatch):
    pipeline = make_shuffled(rows=120)
    with fake_cuda() as framework, feed_of(pipeline, framework, resident="always") as feed:
        warm(framework, feed)
        epoch, paused = iter(feed), PausedCall(monkeypatch, CudaEngine, "hand_out")
        with framework.using(1):
            consumer = ConsumerThread(framework, epoch)
            assert paused.is_reached()
            kept = list(epoch)
            actual = read_all(framework, kept)
        framework.recorded_streams.clear()
        paused.resume()
        assert consumer.has_finished()
        assert consumer.ended_by is None
        assert framework.recorded_streams == [0]
        assert_same(consumer.found + actual, host_epoch(pipeline, 2))
        del kept


def test_closing_while_the_run_ahead_limit_waits_is_safe():
    with fake_cuda(kind=MarkerFramework) as framework:
        engine = CudaEngine(framework)
        limit = RunAheadLimit(engine.device)
        closing, wait_for_value = threading.Thread(target=limit.close), limit._stream.wait_for_value

        def close_during_wait(*arguments):
            closing.start()
            closing.join(0.2)  # seconds; long enough to close, if no lock prevents the close
            wait_for_value(*arguments)

        limit._stream.wait_for_value = close_during_wait
        with engine.device:
            limit.step(framework.mark())
            closing.join(TIMEOUT_SECONDS)
            limit.step(framework.mark())
        assert not closing.is_alive()
        engine.close()


def test_exit_with_an_open_feed_unlocks_no_memory_that_a_copy_reads():
    script = """
        import atexit
        atexit.register(lambda: print(framework.gpu.faults, framework.gpu.locked))  # runs last
        import numpy as np
        import forebay as fb
        from tests.support.fake_cuda import fake_cuda
        from tests.engines.cuda.pull.host_comparison import feed_of
        driver = fake_cuda(pace="late")
        framework = driver.__enter__()
        feed = feed_of(fb.from_arrays(np.arange(100_000)).batch(10), framework, resident="never")
        batch = next(feed)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr) == ("[] {}\n", "")
