"""A bounded number of threads that fetch, none of which keeps a process from ending."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

__all__ = ["Workers"]


class Workers:
    """Threads that are started as there is work for them.

    Python's own executor waits for its threads when the interpreter ends, and so for a server that does not answer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = self._waiting = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        """Do it soon, on some thread; it is cancelled where they were told to end."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._jobs.put((future, job))
            self._waiting += 1
            if self._waiting > self._idle and len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name=f"forebay-fetch-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self) -> None:
        """Let every thread end after what it is doing; what was not begun is cancelled."""
        with self._lock:
            self._closed = True
        with suppress(queue.Empty):  # threads take jobs at the same time
            while job := self._jobs.get_nowait():
                job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle, self._waiting = self._idle - 1, self._waiting - 1
            if job is None:
                return
            _do(*job)
            del job  # or its result would be held until the next one comes


def _do(future: "Future[Any]", job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # whatever it is, it belongs to who waits
        future.set_exception(error)
