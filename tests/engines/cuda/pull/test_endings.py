"""What a feed of a device took is given back, and not before nobody needs it: at errors, at its end, at exit."""

import mmap
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import pytest
from tests.engines.cuda.pull.queueing import PATIENCE, Held, Taker, asleep, shuffled, warm
from tests.engines.cuda.pull.test_fetcher import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.paths import ROOT
from tests.support.plain_cuda import Marking, plain_cuda, prepared

import forebay as fb
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.run_ahead import Lead
from forebay.errors import DeviceError

pytestmark = pytest.mark.timeout(300)  # whoever waits for what is gone hangs


def test_where_a_page_lock_is_refused_no_part_of_the_array_stays_locked(side):
    data = random_rows(400, 100, "u1")
    first, last = data.ctypes.data, data.ctypes.data + data.nbytes
    side.machine.refuse_lock = lambda address, nbytes: first + data.nbytes // 2 < address < last
    with feed_of(fb.from_arrays(data).batch(8), side, resident="never") as feed:
        next(feed)
        prepared()
        assert "refused" in feed.explain()
        assert not any(first - mmap.PAGESIZE < address < last for address in side.machine.locked)


def test_a_device_that_fails_while_rows_are_no_longer_fetched_leaves_the_array_unlocked(side, monkeypatch):
    data = random_rows(400, 100, "u1")
    first, last = data.ctypes.data, data.ctypes.data + data.nbytes
    with feed_of(fb.from_arrays(data).batch(8), side, resident="never") as feed:
        read_all(side, [next(feed)])
        prepared()
        asleep(feed)
        assert any(first <= address < last for address in side.machine.locked)
        with monkeypatch.context() as patch:
            patch.setattr(CudaEngine, "drain", fail_behind(CudaEngine.drain))
            with pytest.raises(DeviceError, match="the device is lost"):
                feed._runner._work.close()
        assert not any(first <= address < last for address in side.machine.locked)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # whoever closes last is told
def test_a_device_that_fails_at_the_end_leaves_no_memory_taken(side, monkeypatch):
    feed = feed_of(shuffled(), side)
    read_all(side, feed)
    monkeypatch.setattr(CudaEngine, "close", fail_behind(CudaEngine.close))
    with suppress(DeviceError):
        feed.close()
    assert feed._runner._slots == {}
    assert side.machine.locked == {}


def fail_behind(method):
    def failing(engine):
        method(engine)
        raise DeviceError("the device is lost")

    return failing


def test_a_batch_that_is_taken_long_after_others_were_is_whole_and_its_stream_is_known(monkeypatch):
    pipeline = shuffled(rows=120)
    with plain_cuda() as side, feed_of(pipeline, side, resident="always") as feed:
        warm(side, feed)
        epoch, held = iter(feed), Held(monkeypatch, CudaEngine, "lend")
        with side.using(1):
            taker = Taker(side, epoch)
            assert held.reached()
            kept = list(epoch)
            found = read_all(side, kept)
        side.kept_for.clear()
        held.go_on()
        assert taker.joined()
        assert taker.ended_by is None
        assert side.kept_for == [0]
        assert_same(taker.found + found, host_epoch(pipeline, 2))
        del kept


def test_a_consumer_that_is_held_back_while_its_feed_is_closed_meets_nothing_that_is_gone():
    with plain_cuda(kind=Marking) as side:
        engine = CudaEngine(side)
        lead = Lead(engine.device)
        closing, wait_for_value = threading.Thread(target=lead.close), lead._stream.wait_for_value

        def close_meanwhile(*arguments):
            closing.start()
            closing.join(0.2)  # which is long enough, if nothing keeps it from closing
            wait_for_value(*arguments)

        lead._stream.wait_for_value = close_meanwhile
        with engine.device:
            lead.step(side.mark())
            closing.join(PATIENCE)
            lead.step(side.mark())
        assert not closing.is_alive()
        engine.close()


def test_a_process_that_ends_with_a_feed_open_unlocks_no_memory_that_a_copy_still_reads():
    script = """
        import atexit
        atexit.register(lambda: print(side.machine.faults, side.machine.locked))  # last of all
        import numpy as np
        import forebay as fb
        from tests.support.plain_cuda import plain_cuda
        from tests.engines.cuda.pull.test_fetcher import feed_of
        driver = plain_cuda(pace="late")
        side = driver.__enter__()
        feed = feed_of(fb.from_arrays(np.arange(100_000)).batch(10), side, resident="never")
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
