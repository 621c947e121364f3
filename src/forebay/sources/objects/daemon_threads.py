"""A bounded pool of daemon threads that send requests."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

__all__ = ["DaemonThreads"]


class DaemonThreads:
    """A thread pool that starts threads on demand and never delays the interpreter's exit.

    `concurrent.futures.ThreadPoolExecutor` waits for its threads when the interpreter exits. With that class, a
    thread that waits for the answer of a server would keep the process alive.
    """

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle_threads = self._queued_jobs = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        """Queue a job and return the future of its result.

        If the pool is closed, the future is cancelled.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._is_closed:
                future.cancel()
                return future
            self._jobs.put((future, job))
            self._queued_jobs += 1
            if self._queued_jobs > self._idle_threads and len(self._threads) < self._max_threads:
                thread = threading.Thread(target=self._run, name=f"forebay-fetch-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def close(self) -> None:
        """Cancel queued jobs. Each thread ends after its current job."""
        with self._lock:
            self._is_closed = True
        with suppress(queue.Empty):  # `get_nowait` raises Empty after the last job
            while job := self._jobs.get_nowait():
                job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle_threads += 1
            job = self._jobs.get()
            with self._lock:
                self._idle_threads, self._queued_jobs = self._idle_threads - 1, self._queued_jobs - 1
            if job is None:
                return
            _run_job(*job)
            del job  # otherwise the thread keeps the result in memory until its next job


def _run_job(future: "Future[Any]", job: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(job())
    except BaseException as error:  # `Future.result` raises the error in the waiting thread
        future.set_exception(error)
