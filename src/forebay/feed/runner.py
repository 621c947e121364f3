"""Runs a feed: worker threads fill slots, and the consumer takes them in order.

Nothing waits without a way to be woken. An error in a worker is raised where the consumer reaches its group. `close()`
wakes every waiting thread. A forked process has no worker threads and raises an error instead of waiting for them.
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
from forebay.core.recorder import Recorder
from forebay.errors import FeedClosedError, FeedError
from forebay.feed.filler import SlotFiller
from forebay.feed.ring import Fill
from forebay.feed.slot import Slot
from forebay.feed.slot_exchange import SlotExchange
from forebay.feed.throttle import ConsumerThrottle
from forebay.order.schedule import Cursor, Group

__all__ = ["Runner", "RunnerParts"]

POLL_SECONDS = 1e-3  # the consumer polls a stream at this interval; a fast stream delivers several groups each time
JOIN_SECONDS = 2.0  # a thread inside the user's generator may never return; then `close()` leaves it behind

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

    It holds no reference to the feed, so that an abandoned feed can be collected.
    """

    def __init__(self, parts: RunnerParts, *, slots: int, threads: int, budget_nbytes: int) -> None:
        self._filler, self._engine = parts.filler, parts.engine
        self._throttle, self._recorder = parts.throttle, parts.recorder
        exchange = SlotExchange(parts.filler, parts.engine, parts.make_slot, slots=slots, budget_nbytes=budget_nbytes)
        self._exchange, self._lock = exchange, exchange.lock
        self._may_fill, self._may_take = exchange.may_fill, exchange.may_take
        self._consumer_done = threading.Condition(self._lock)
        self._filling_consumers: set[int] = set()  # ids of consumer threads inside a fill
        self._read_lock: AbstractContextManager[Any] = (
            threading.Lock() if self._filler.reads_in_order else nullcontext()
        )
        self._closed = self._resources_closed = False
        self._generation = 0
        self._pid = os.getpid()
        self._threads = [
            threading.Thread(target=self._run_worker, args=(worker,), name=f"forebay-{worker}", daemon=True)
            for worker in range(threads)
        ]
        self._started = False

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def continues(self) -> bool:
        """True if worker threads fill groups of the next epoch before it is requested."""
        return self._filler.continues_into_next_epoch

    def continue_epoch(self) -> int:
        """Begin the next epoch where the last one ended. Return its generation, for `take`."""
        self._check_usable()
        with self._lock:
            self._generation += 1
            return self._generation

    def restart(self, cursor: Cursor) -> int:
        """Begin an epoch at the cursor, and drop all groups that were not taken.

        Return its generation.
        """
        self._check_usable()  # before the lock: in a forked process, a thread that does not exist may hold it
        with self._lock:
            generation = self.continue_epoch()
            self._exchange.restart(cursor)
            self._throttle.reset()
            if not self._exchange.next_fill_only_enqueues():
                self._may_fill.notify_all()
            self._may_take.notify_all()
            if not self._started:
                self._started = True
                for thread in self._threads:
                    thread.start()
        return generation

    def take(self, generation: int) -> Slot | None:
        """Return the slot of the next group, or None at the end."""
        self._check_usable()
        self._throttle.on_request()
        exchange = self._exchange
        with self._lock, self._engine.consumer_scope():
            self._check_generation(generation)
            exchange.reclaim()
            # Queueing work for a device costs less than waking a thread that does it.
            while not exchange.errors and exchange.next_fill_only_enqueues() and self._fill_on_consumer():
                self._check_generation(generation)
            slot = exchange.deliver()
            if slot is None and not exchange.ring.ended:
                slot = self._wait_for_group(generation)
        if slot is None or slot.group is None:
            return None
        self._engine.await_arrival(slot.memory)
        self._throttle.on_take(slot.group.batches)
        return slot

    def close(self) -> None:
        """End all threads and release everything. Any thread may call this, also more than once."""
        if os.getpid() != self._pid:
            return  # a forked process has no worker threads, and its parent still uses everything else
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._throttle.close()
            self._may_fill.notify_all()
            self._may_take.notify_all()
        self._filler.stop()
        self._join_threads()
        self._close_resources()

    # The consumer's thread, which holds the lock (except in `_check_usable`)

    def _wait_for_group(self, generation: int) -> Slot | None:
        """Wait for the next group. Meanwhile the consumer fills slots itself, if that cannot block."""
        began = time.perf_counter()
        exchange, filler = self._exchange, self._filler
        self._throttle.on_wait()
        try:
            while (slot := exchange.deliver()) is None and not exchange.ring.ended:
                may_fill = filler.is_plain_copy or exchange.next_fill_only_enqueues()
                if not (may_fill and self._fill_on_consumer()):
                    self._may_fill.notify()
                    self._may_take.wait(POLL_SECONDS if filler.reads_in_order else None)
                self._check_generation(generation)
        finally:
            self._throttle.is_waiting = False
            self._recorder.add_span("wait", time.perf_counter() - began)
        return slot

    def _fill_on_consumer(self) -> bool:
        """Fill a group on the consumer's thread; return False if there is nothing to fill.

        To wake a worker thread would cost as much as the fill itself.
        """
        claimed = self._exchange.claim()
        if claimed is None:
            return False
        (fill, task), worker = claimed, len(self._threads)
        self._filling_consumers.add(threading.get_ident())
        self._lock.release()
        try:
            self._complete(fill, self._begin(fill, task, worker), worker)
        except BaseException as error:
            self._exchange.report_failed(fill, error)
            if not isinstance(error, Exception):  # a KeyboardInterrupt belongs to this thread
                raise
        finally:
            self._lock.acquire()
            self._filling_consumers.discard(threading.get_ident())
            if self._closed:
                self._close_resources()
                self._consumer_done.notify_all()
        return True

    def _check_generation(self, generation: int) -> None:
        self._raise_if_closed()
        if generation != self._generation:
            raise FeedError("another iteration of this feed began, which ended this one. Use the newer iterator.")

    def _check_usable(self) -> None:
        self._raise_if_closed()
        if os.getpid() != self._pid:
            raise FeedError(
                f"this feed was started in process {self._pid} and its threads stayed there when the process forked. "
                "Make the feed in the process that uses it, or start processes with the 'spawn' method."
            )

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")

    # Worker threads

    def _run_worker(self, worker: int) -> None:
        self._engine.enter_worker_thread()
        try:
            while self._fill_next(worker):
                pass
        finally:
            self._close_resources()

    def _fill_next(self, worker: int) -> bool:
        """Fill one group. Return False if the runner is closed."""
        fill: Fill | None = None
        try:
            with self._read_lock:
                fill, task = self._wait_for_task()
                if fill is None:
                    return False
                begun = self._begin(fill, task, worker)
            group = self._complete(fill, begun, worker)
        except BaseException as error:  # the consumer gets every error
            if fill is None:
                raise
            self._exchange.report_failed(fill, error)
            return True
        if group is not None:
            with suppress(Exception):  # the fill that needs this work repeats it and raises the error
                self._filler.prepare_after(group)
        return True

    def _wait_for_task(self) -> tuple[Fill | None, Any]:
        with self._lock:
            while not self._closed:
                claimed = self._exchange.claim()
                if claimed is not None:
                    return claimed
                self._may_fill.wait()
        return None, None

    def _begin(self, fill: Fill, task: Any, worker: int) -> Any | None:
        slot = self._exchange.open_slot(fill, task)
        self._engine.wait_host_free(slot.memory)
        return self._filler.read(slot, task, worker)

    def _complete(self, fill: Fill, begun: Any | None, worker: int) -> Group | None:
        group = None
        if begun is not None:
            slot = self._exchange.slots[fill.slot]
            slot.group = group = self._filler.finish(slot, begun, worker)
            slot.send()
        self._exchange.report_filled(fill, is_end=begun is None)
        return group

    # The end

    def _join_threads(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._other_live_threads():
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            own = {threading.get_ident()}  # a signal handler may close the feed on a thread that fills
            self._consumer_done.wait_for(lambda: self._filling_consumers <= own, max(0.0, deadline - time.monotonic()))
        if self._other_live_threads():
            _log.warning("a forebay thread is still inside the user's code after close(); it is left behind.")

    def _close_resources(self) -> None:
        """Close the filler, the slots and the engine, once no thread uses them.

        A thread may stay in the user's code long after `close()`. Each thread calls this when it ends.
        """
        with self._lock:
            in_use = self._other_live_threads() or self._filling_consumers
            if in_use or not self._closed or self._resources_closed:
                return
            self._resources_closed = True
        slots = self._exchange.slots
        with ExitStack() as stack:  # runs all callbacks, the last one first, also after an error
            stack.callback(slots.clear)
            stack.callback(self._engine.close)
            for slot in slots.values():
                stack.callback(slot.close)
            stack.callback(self._filler.close)

    def _other_live_threads(self) -> list[threading.Thread]:
        current = threading.current_thread()
        return [thread for thread in self._threads if thread.is_alive() and thread is not current]
