"""The pool of daemon threads ends immediately and cancels its jobs."""

import queue
import threading

from forebay.sources.objects.daemon_threads import DaemonThreads


class Contested(queue.SimpleQueue):
    """A queue that another thread always empties between `empty` and `get`."""

    def empty(self):
        return False


def test_close_does_not_wait_for_a_job_that_a_thread_has_just_taken(monkeypatch):
    monkeypatch.setattr(queue, "SimpleQueue", Contested)
    closing = threading.Thread(target=DaemonThreads(4).close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_a_job_after_close_is_cancelled():
    threads = DaemonThreads(2)
    threads.submit(int).result(60)
    threads.close()
    assert threads.submit(int).cancelled()
