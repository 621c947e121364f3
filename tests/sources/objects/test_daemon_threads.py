"""Threads that fetch: they end when they are told to, whatever they are at, and nobody waits for them in vain."""

import queue
import threading

from forebay.sources.objects.daemon_threads import Workers


class Contested(queue.SimpleQueue):
    """Jobs that somebody else always takes between a look at them and the next step."""

    def empty(self):
        return False


def test_closing_does_not_wait_for_a_job_that_a_thread_has_just_taken(monkeypatch):
    monkeypatch.setattr(queue, "SimpleQueue", Contested)
    closing = threading.Thread(target=Workers(4).close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_what_is_asked_for_after_closing_is_cancelled():
    workers = Workers(2)
    workers.submit(int).result(60)
    workers.close()
    assert workers.submit(int).cancelled()
