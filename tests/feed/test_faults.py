"""Interruptions of a feed: it never hangs and never loses a row silently."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import forebay as fb
from forebay.errors import DeviceMemoryError, FeedClosedError, FeedError, SourceChangedError, WorkerError
from forebay.sources.arrays import ArraySource
from forebay.testing import SimulatedEngine


def received(feed):
    """Return all rows of the next epoch."""
    return [row for batch in feed for row in batch.tolist()]


def collect(feed, got):
    """Add rows to `got`, which keeps them if the feed raises."""
    for batch in feed:
        got.extend(batch.tolist())


def kill_on_fifty(batch):
    if 50 in batch:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def fail_on_fifty(batch):
    if 50 in batch:
        raise ZeroDivisionError("fifty")
    return batch


def run_script(source, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        **options,
    )


@pytest.mark.parametrize("where", ["thread", "process"])
def test_all_batches_before_a_failing_one_arrive_and_the_state_is_before_it(where):
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fail_on_fifty, where=where)
    got = []
    with pipeline.feed("numpy") as feed:
        with pytest.raises(ZeroDivisionError, match="fifty") as caught:
            collect(feed, got)
        assert got == list(range(50))
        assert feed.state_dict()["position"] == 50
    assert any("rows 50 to 59" in note for note in caught.value.__notes__)


def test_batches_before_a_failing_one_arrive_when_a_worker_process_maps_several_at_a_time():
    pipeline = fb.from_arrays(np.arange(2000)).batch(1).map(fail_on_fifty, where="process")
    got = []
    with pipeline.feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        with pytest.raises(ZeroDivisionError, match="fifty") as caught:
            collect(feed, got)
        assert got == list(range(50))
        assert feed.state_dict()["position"] == 50
    assert any("rows 50 to 50 at position 50" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("rows", "ending"), [(4, r"\d\) at"), (8, r"\d\) at"), (9, r"\d, \.\.\.\) at")])
def test_the_note_on_an_error_lists_up_to_eight_shuffled_rows(rows, ending):
    pipeline = fb.from_arrays(np.arange(90)).shuffle(seed=0).batch(rows).map(fail_on_fifty)
    with pipeline.feed("numpy") as feed, pytest.raises(ZeroDivisionError) as caught:
        received(feed)
    assert re.search(rf"{rows} rows \(\d+.*{ending} position", caught.value.__notes__[-1])


def test_a_failed_feed_can_continue_after_the_bad_batch():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fail_on_fifty)
    with pipeline.feed("numpy") as feed:
        with pytest.raises(ZeroDivisionError):
            received(feed)
        feed.load_state_dict(feed.state_dict() | {"position": 60})
        assert received(feed) == list(range(60, 100))


def test_a_map_that_raises_stop_iteration_does_not_end_the_epoch():
    def stop(batch):
        if batch[0] >= 50:
            raise StopIteration
        return batch

    with pytest.raises(RuntimeError, match="StopIteration"):
        received(fb.from_arrays(np.arange(100)).batch(10).map(stop).feed("numpy"))


def test_the_error_after_the_kill_of_a_worker_process_names_the_signal():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(kill_on_fifty, where="process")
    with pipeline.feed("numpy") as feed, pytest.raises(WorkerError, match="SIGKILL"):
        received(feed)


def test_a_worker_killed_during_a_task_of_several_batches_loses_no_earlier_batch():
    pipeline = fb.from_arrays(np.arange(2000)).batch(1).map(kill_on_fifty, where="process")
    got = []
    with pipeline.feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        with pytest.raises(WorkerError, match="SIGKILL"):
            collect(feed, got)
        position = feed.state_dict()["position"]
        assert 50 - feed.plan.group_batches < position <= 50
        assert got == list(range(position))


def test_a_feed_continues_after_a_worker_died():
    pipeline = fb.from_arrays(np.arange(100)).batch(10).map(kill_on_fifty, where="process")
    with pipeline.feed("numpy") as feed:
        for _ in range(2):
            with pytest.raises(WorkerError, match="SIGKILL"):
                received(feed)
            feed.load_state_dict(feed.state_dict() | {"position": 60})
            assert received(feed) == list(range(60, 100))


def test_full_batches_before_the_error_of_a_generator_arrive():
    def broken():
        yield from range(25)
        raise OSError("the sensor is gone")

    got = []
    with fb.from_generator(broken).batch(10).feed("numpy") as feed, pytest.raises(OSError, match="sensor"):
        collect(feed, got)
    assert got == list(range(20))  # rows 20 to 24 do not fill a batch


def test_closing_wakes_a_consumer_that_waits_for_a_blocked_generator():
    release = threading.Event()

    def blocked():
        yield from range(10)
        release.wait()
        yield 10

    feed = fb.from_generator(blocked).batch(10).feed("numpy")
    iterator = iter(feed)
    next(iterator)
    threading.Timer(0.1, feed.close).start()
    with pytest.raises(FeedClosedError):  # otherwise the consumer would wait for ever
        next(iterator)
    release.set()


def test_a_generator_may_wait_until_the_consumer_has_used_a_batch():
    trained = threading.Semaphore(1)

    def in_step():
        for number in range(40):
            if number % 4 == 0:
                assert trained.acquire(timeout=60)
            yield number

    with fb.from_generator(in_step, spec="int64").batch(4).feed("numpy") as feed:
        for step, batch in enumerate(feed):
            assert batch.tolist() == list(range(step * 4, step * 4 + 4))
            trained.release()


def test_close_waits_only_for_the_batches_that_a_slow_map_has_begun():
    begun = []

    def slow(batch):
        begun.append(len(batch))
        time.sleep(0.02)
        return batch

    feed = fb.from_arrays(np.arange(100_000)).batch(10).map(slow).feed("numpy")
    next(iter(feed))
    feed.close()
    assert len(begun) < 5000  # not all 10,000, which would take minutes


def test_a_file_that_shrinks_in_mid_epoch_is_an_error_not_a_crash(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.zeros((20_000, 1000), np.float32))
    with fb.from_files(path).batch(100).feed("numpy", host_bytes="8MB") as feed:
        iterator = iter(feed)
        next(iterator)
        with path.open("r+b") as file:
            file.truncate(4096)
        with pytest.raises(SourceChangedError, match=r"data\.npy"):
            list(iterator)


def test_a_file_that_vanishes_before_it_is_opened_is_named(tmp_path):
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.full(10, number))
    pipeline = fb.from_files(str(tmp_path / "*.npy"), max_open_files=1).batch(10)
    (tmp_path / "5.npy").unlink()
    with pipeline.feed("numpy") as feed, pytest.raises(SourceChangedError, match=r"5\.npy"):
        received(feed)


def test_a_feed_in_a_forked_child_raises_because_its_threads_are_gone():
    done = run_script("""
        import os, warnings
        warnings.simplefilter("ignore")
        import numpy as np, forebay as fb
        feed = fb.from_arrays(np.arange(100_000)).batch(10).feed("numpy")
        iterator = iter(feed)
        next(iterator)
        child = os.fork()
        if child == 0:
            for use in (lambda: list(iterator), lambda: iter(feed)):
                try:
                    use()
                except fb.ForebayError as error:
                    print("child:", type(error).__name__, error)
            del iterator, feed
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", sum(1 for _ in iterator))
    """)
    assert done.stdout.count("child: FeedError this feed was started in process") == 2
    assert "parent: 9999" in done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("where", ["thread", "process"])
# Status 0 after an error: Forebay handles errors of maps in the forked process too, and the process then ends normally.
@pytest.mark.parametrize(
    ("ending", "status"), [("os._exit(3)", 3), ("sys.exit(3)", 3), ("raise OSError('in the child')", 0), ("pass", 0)]
)
def test_a_process_that_a_map_forks_ends_and_the_feed_continues(where, ending, status):
    done = run_script(f"""
        import os, sys, time
        import numpy as np, forebay as fb
        def fork_on_fifty(batch):
            if 50 in batch:
                child = os.fork()
                if child == 0:
                    {ending}
                    return -batch
                for _ in range(3000):
                    pid, status = os.waitpid(child, os.WNOHANG)
                    if pid:
                        return np.full_like(batch, os.waitstatus_to_exitcode(status))
                    time.sleep(0.01)
                os.kill(child, 9)
                raise TimeoutError("the child hangs")
            return batch
        pipeline = fb.from_arrays(np.arange(100)).batch(10).map(fork_on_fifty, where="{where}")
        print([int(batch[0]) for _ in range(2) for batch in pipeline.feed("numpy")])
    """)
    exit_code = status if where == "process" or "_exit" in ending else 0  # Python ignores sys.exit() in a thread
    epoch = [0, 10, 20, 30, 40, exit_code, 60, 70, 80, 90]
    assert (done.stdout, done.returncode) == (f"{epoch * 2}\n", 0), done.stderr


@pytest.mark.parametrize(
    "source", ["fb.from_generator(blocked).batch(4)", "fb.from_arrays(np.arange(9)).batch(4).map(stuck)"]
)
def test_ctrl_c_ends_a_feed_that_waits(source):
    script = f"""
        import threading, numpy as np, forebay as fb
        calls = []
        def blocked():
            yield 1
            print("waiting", flush=True)
            threading.Event().wait()
        def stuck(batch):
            if calls:
                print("waiting", flush=True)
                threading.Event().wait()
            calls.append(1)
            return batch
        for batch in {source}.feed("numpy"):
            pass
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0


@pytest.mark.parametrize("ending", ["pass", "feed.close()", "del feed", "raise SystemExit(0)"])
def test_a_script_that_ends_in_mid_epoch_exits_cleanly(ending):
    done = run_script(f"""
        import numpy as np, forebay as fb, forebay.feed.runner
        forebay.feed.runner.JOIN_SECONDS = 60.0  # after 2 s, close() could log a warning on a busy machine
        feed = fb.from_arrays(np.zeros((10_000, 100))).shuffle(seed=0).batch(10).feed("numpy")
        batch = next(feed)
        {ending}
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_thread_raises_when_the_garbage_collector_ends_a_running_feed():
    for _ in range(20):
        feed = fb.from_arrays(np.zeros((1000, 100))).batch(10).feed("numpy")
        cycle = [feed]
        cycle.append(cycle)  # only the garbage collector frees a reference cycle
        next(iter(feed))
        del feed, cycle


def test_a_waiting_iterator_raises_an_error_when_a_newer_one_begins():
    release = threading.Event()

    def blocked():
        yield from range(4)
        release.wait()
        yield from range(4, 8)

    feed = fb.from_generator(blocked).batch(4).feed("numpy")
    first = iter(feed)
    next(first)
    errors = []

    def wait_for_more():
        try:
            next(first)
        except FeedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait_for_more)
    thread.start()
    time.sleep(0.1)
    second = iter(feed)
    thread.join(60)
    release.set()
    assert len(errors) == 1
    assert received(second) == list(range(8))
    feed.close()


class FailingPrefetch(ArraySource):
    """A source whose prefetch raises an error."""

    def prefetch(self, upcoming):
        raise OSError("the server is gone")


def test_an_error_at_the_start_of_an_epoch_is_raised_in_this_and_every_later_epoch():
    # Without a map, the consumer would start the epoch instead of a worker thread.
    mapped = fb.from_arrays(np.arange(100)).batch(10).map(np.negative)
    pipeline = replace(mapped, source=FailingPrefetch(np.arange(100)))
    with pipeline.feed("numpy", device="cpu") as feed:
        for _ in range(3):
            with pytest.raises(OSError, match="the server is gone"):
                received(feed)


def test_a_slot_that_could_not_be_allocated_is_not_reused_before_free_slots():
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        ring = feed._runner._exchange.ring
        feed._runner._exchange.report_failed(ring.start_fill(), DeviceMemoryError("no room for another slot"))
        assert ring.next_slot is None  # the ring has no free slot, so it will make a new one
        assert sum(len(batch) for batch in feed) == 400


def assert_resumes_after(error, feed, epoch):
    """Assert that an epoch of 400 rows ends with this error, and that its state resumes after the last received row."""
    got = []
    with pytest.raises(error):
        collect(epoch, got)
    with pytest.raises(FeedError, match="this iteration has ended"):
        next(epoch)
    feed.load_state_dict(feed.state_dict())
    assert got + received(feed) == list(range(400))


@pytest.mark.parametrize("failing", [0, 1, 9, 30])
def test_a_batch_that_could_not_be_handed_off_does_not_count_as_received(failing):
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        epoch = iter(feed)
        hand_off, calls = epoch._hand_off, []

        def fail_once(roots):
            calls.append(roots)
            if len(calls) == failing + 1:
                raise MemoryError("no room for another array")
            return hand_off(roots)

        epoch._hand_off = fail_once
        assert_resumes_after(MemoryError, feed, epoch)


@pytest.mark.parametrize("failing", [0, 1, 30])
def test_a_device_map_that_raises_stop_iteration_does_not_end_the_epoch(failing):
    def stop(leaves, key):
        if leaves[0][0] == 8 * failing:
            raise StopIteration
        return leaves[0]

    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        epoch = iter(feed)
        epoch._device_transforms = stop
        assert_resumes_after(RuntimeError, feed, epoch)


def test_a_hand_off_that_raises_stop_iteration_does_not_end_the_epoch():
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy") as feed:
        epoch = iter(feed)
        next(epoch)
        epoch._hand_off = lambda roots: next(iter(()))
        with pytest.raises(RuntimeError, match="StopIteration"):
            received(epoch)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("failing", [0, 1, 30])
def test_a_batch_whose_device_map_failed_does_not_count_as_received(failing, error):
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        epoch = iter(feed)

        def fail(leaves, key):
            if leaves[0][0] == 8 * failing:
                raise error("on purpose")
            return leaves[0]

        epoch._device_transforms = fail
        assert_resumes_after(error, feed, epoch)
