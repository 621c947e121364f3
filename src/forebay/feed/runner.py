"""Runs a feed: worker threads fill slots, and the consumer takes them in order.

If a thread cannot fill a slot, the consumer gets the error when it requests the group of this slot. `close()` wakes
every waiting thread. A forked process has no worker threads, so in such a process the runner raises an error instead of
waiting for them.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from forebay.core.engine import Engine
from forebay.core.progress_line import SHOW_AFTER_SECONDS, BackgroundLine
from forebay.core.recorder import Recorder
from forebay.errors import FeedClosedError, FeedError
from forebay.feed.filler import SlotFiller
from forebay.feed.ring import Fill
from forebay.feed.slot import Slot
from forebay.feed.slot_exchange import SlotExchange
from forebay.feed.throttle import ConsumerThrottle
from forebay.order.schedule import Cursor, Group

__all__ = ["Runner", "RunnerParts"]

POLL_SECONDS = 1e-3  # interval at which a consumer looks for a group of a stream; a fast stream fills several meanwhile
_THREAD_PREFIX = "forebay-"  # the names of all threads that Forebay starts begin with it
JOIN_SECONDS = 2.0  # longest wait of `close()` for threads, because a user's generator may never return

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """The objects that a runner needs."""

    filler: SlotFiller
    engine: Engine
    make_slot: Callable[[], Slot]
    throttle: ConsumerThrottle
    recorder: Recorder


class Runner:
    """The threads of a feed.

    The runner does not refer to the feed, so that Python can collect a feed that the user no longer holds.
    """

    def __init__(self, parts: RunnerParts, *, slots: int, threads: int, budget_nbytes: int) -> None:
        self._filler, self._engine = parts.filler, parts.engine
        self._throttle, self._recorder = parts.throttle, parts.recorder
        exchange = SlotExchange(parts.filler, parts.engine, parts.make_slot, slots=slots, budget_nbytes=budget_nbytes)
        self._exchange, self._lock = exchange, exchange.lock
        self._fill_condition, self._take_condition = exchange.fill_condition, exchange.take_condition
        self._consumer_fill_done = threading.Condition(self._lock)
        self._filling_consumer_ids: set[int] = set()  # ids of consumer threads that are filling a slot
        self._read_lock: AbstractContextManager[Any] = (
            threading.Lock() if self._filler.reads_in_order else nullcontext()
        )
        self._is_closed = self._has_closed_resources = False
        self._generation = 0
        self._pid = os.getpid()
        self._threads = [
            threading.Thread(target=self._run_worker, args=(worker,), name=f"{_THREAD_PREFIX}{worker}", daemon=True)
            for worker in range(threads)
        ]
        self._has_started = False

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def fills_next_epoch(self) -> bool:
        """True if worker threads fill groups of the next epoch before `iter()` starts it."""
        return self._filler.continues_into_next_epoch

    def continue_epoch(self) -> int:
        """Start the epoch that worker threads already fill, and return its generation for `take`.

        `take` then returns the groups that they have filled.
        """
        self._check_usable()
        with self._lock:
            self._generation += 1
            return self._generation

    def restart(self, cursor: Cursor) -> int:
        """Start an epoch at the cursor, and return its generation for `take`.

        Drop filled groups that the consumer has not taken, because they belong to another position.
        """
        self._check_usable()  # before the lock: in a forked process, a thread of the parent may hold the lock forever
        with self._lock:
            generation = self.continue_epoch()
            self._exchange.restart(cursor)
            self._throttle.reset()
            if not self._exchange.next_fill_only_enqueues():
                self._fill_condition.notify_all()
            self._take_condition.notify_all()
            if not self._has_started:
                self._has_started = True
                for thread in self._threads:
                    thread.start()
        return generation

    def take(self, generation: int) -> Slot | None:
        """Return the slot of the next group, or None at the end of the epoch."""
        self._check_usable()
        self._throttle.on_request()
        exchange = self._exchange
        with self._lock, self._engine.consumer_scope():
            self._check_generation(generation)
            exchange.reclaim()
            # Fill slots here while this only queues work for a device: it takes less time than to wake a worker thread.
            while not exchange.errors and exchange.next_fill_only_enqueues() and self._fill_on_consumer():
                self._check_generation(generation)
            slot = exchange.deliver()
            if slot is None and not exchange.ring.has_ended:
                slot = self._wait_for_group(generation)
        if slot is None or slot.group is None:
            return None
        self._engine.await_arrival(slot.memory)
        self._throttle.on_take(slot.group.batches)
        return slot

    def close(self) -> None:
        """End all threads and free all memory. Any thread may call this, also repeatedly.

        Do nothing in a forked process.
        """
        if self._is_forked:
            return  # a forked process has no worker threads, and its parent still uses the memory
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._throttle.close()
            self._fill_condition.notify_all()
            self._take_condition.notify_all()
        self._filler.stop()
        self._join_threads()
        self._close_resources()

    # Methods of the consumer's thread, which holds the lock (except in `_check_usable`)

    def _wait_for_group(self, generation: int) -> Slot | None:
        """Wait for the next group and return its slot; None after the last group.

        While no group is ready, the consumer's thread fills slots itself if that cannot block. After two seconds, it
        shows the progress line of what a worker thread does, such as an upload.
        """
        started_at = time.perf_counter()
        exchange, filler = self._exchange, self._filler
        timeout = POLL_SECONDS if filler.reads_in_order else SHOW_AFTER_SECONDS
        line: BackgroundLine | None = None
        self._throttle.on_wait()
        try:
            while (slot := exchange.deliver()) is None and not exchange.ring.has_ended:
                may_fill = filler.consumer_may_fill or exchange.next_fill_only_enqueues()
                if not (may_fill and self._fill_on_consumer()):
                    self._fill_condition.notify()
                    self._take_condition.wait(timeout)
                    if line is None and time.perf_counter() - started_at >= SHOW_AFTER_SECONDS:
                        line = BackgroundLine().__enter__()
                self._check_generation(generation)
        finally:
            if line is not None:
                line.__exit__(None, None, None)
            self._throttle.is_waiting = False
            self._recorder.add_span("wait", time.perf_counter() - started_at)
        return slot

    def _fill_on_consumer(self) -> bool:
        """Fill a slot on the consumer's thread. Return False if there is nothing to fill."""
        claimed = self._exchange.claim()
        if claimed is None:
            return False
        (fill, task), worker = claimed, len(self._threads)
        self._filling_consumer_ids.add(threading.get_ident())
        self._lock.release()
        try:
            self._finish(fill, self._read(fill, task, worker), worker)
        except BaseException as error:
            self._exchange.report_failed(fill, error)
            if not isinstance(error, Exception):  # raise a KeyboardInterrupt here, on the consumer's thread
                raise
        finally:
            self._lock.acquire()
            self._filling_consumer_ids.discard(threading.get_ident())
            if self._is_closed:
                self._close_resources()
                self._consumer_fill_done.notify_all()
        return True

    def _check_generation(self, generation: int) -> None:
        self._raise_if_closed()
        if generation != self._generation:
            raise FeedError("another iteration of this feed began, which ended this one. Use the newer iterator.")

    @property
    def _is_forked(self) -> bool:
        """True in a process that was forked from the process of this feed."""
        return os.getpid() != self._pid

    def _check_usable(self) -> None:
        self._raise_if_closed()
        self._check_process()

    def _check_process(self) -> None:
        if self._is_forked:
            raise FeedError(
                f"this feed was started in process {self._pid} and its threads stayed there when the process forked. "
                "Make the feed in the process that uses it, or start processes with the 'spawn' method."
            )

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")

    # Methods of worker threads

    def _run_worker(self, worker: int) -> None:
        self._engine.enter_worker_thread()
        try:
            while self._fill_next(worker):
                pass
        finally:
            self._close_resources()

    def _fill_next(self, worker: int) -> bool:
        """Wait for a slot and fill it. Return False if the runner is closed."""
        fill: Fill | None = None
        try:
            with self._read_lock:
                fill, task = self._wait_for_task()
                if fill is None:
                    return False
                read_result = self._read(fill, task, worker)
            group = self._finish(fill, read_result, worker)
        except BaseException as error:  # the consumer raises the error later
            if fill is None or self._is_forked:
                raise
            self._exchange.report_failed(fill, error)
            return True
        if group is not None:
            with suppress(Exception):  # a later fill does this work again, and then reports the error to the consumer
                self._filler.prepare_after(group)
        return True

    def _wait_for_task(self) -> tuple[Fill | None, Any]:
        with self._lock:
            while not self._is_closed:
                claimed = self._exchange.claim()
                if claimed is not None:
                    return claimed
                self._fill_condition.wait()
        return None, None

    def _read(self, fill: Fill, task: Any, worker: int) -> Any | None:
        slot = self._exchange.open_slot(fill, task)
        self._engine.wait_host_free(slot.memory)
        return self._filler.read(slot, task, worker)

    def _finish(self, fill: Fill, read_result: Any | None, worker: int) -> Group | None:
        group = None
        if read_result is not None:
            slot = self._exchange.slots[fill.slot]
            slot.group = group = self._filler.finish(slot, read_result, worker)
            slot.send()
        # A map may fork. In the forked process, the lock may stay locked forever, so this check ends the thread there.
        self._check_process()
        self._exchange.report_filled(fill, is_end=read_result is None)
        return group

    # Closing

    def _join_threads(self) -> None:
        """Wait until the worker threads have ended, unless the calling thread belongs to Forebay.

        The garbage collector may close a feed on a decoder thread. A worker thread of this feed may wait for the same
        decoder thread, so neither of them would end.
        """
        if threading.current_thread().name.startswith(_THREAD_PREFIX):
            return
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._other_live_threads():
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            own_id = {threading.get_ident()}  # a signal handler may call close() during a fill of this very thread
            self._consumer_fill_done.wait_for(
                lambda: self._filling_consumer_ids <= own_id, max(0.0, deadline - time.monotonic())
            )
        if self._other_live_threads():
            _log.warning(
                "a thread of Forebay still runs the user's code after close(). It ends when this code returns."
            )

    def _close_resources(self) -> None:
        """Close the filler, the slots and the engine, unless a thread still uses them.

        Each thread also calls this method when it ends, because it may run the user's code long after `close()`.
        """
        if self._is_forked:
            return
        with self._lock:
            in_use = self._other_live_threads() or self._filling_consumer_ids
            if in_use or not self._is_closed or self._has_closed_resources:
                return
            self._has_closed_resources = True
        slots = self._exchange.slots
        with ExitStack() as stack:  # runs all callbacks even after an error, in reverse order
            stack.callback(slots.clear)
            stack.callback(self._engine.close)
            for slot in slots.values():
                stack.callback(slot.close)
            stack.callback(self._filler.close)

    def _other_live_threads(self) -> list[threading.Thread]:
        current = threading.current_thread()
        return [thread for thread in self._threads if thread.is_alive() and thread is not current]
