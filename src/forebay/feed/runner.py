"""Carries out the ring's instructions: threads that fill slots, a consumer that takes them, and every way to wake both.

Nothing waits without a way to be woken: an error in a worker comes out where the consumer gets to its group, `close()`
wakes whoever waits, and a process that was forked away from its threads says so instead of waiting for them.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from forebay.core.engine import Engine
from forebay.core.recorder import Recorder
from forebay.errors import FeedClosedError, FeedError
from forebay.feed.filler import Work
from forebay.feed.ring import Fill, Ring
from forebay.feed.slot import Slot
from forebay.feed.throttle import Consumer
from forebay.order.schedule import Cursor, Group
from forebay.pipeline.plan import USUALLY_LENT

__all__ = ["Runner"]

PATIENCE_SECONDS = 1e-3  # what comes quicker than this from a stream is delivered several groups at a time
JOIN_SECONDS = 2.0  # a thread inside somebody's generator may never come back; it is left behind then

_NO_TASK = object()

_log = logging.getLogger(__name__)


class Runner:
    """Threads around a ring. It knows nothing of the feed that holds it, so an abandoned feed can go away."""

    def __init__(
        self,
        work: Work,
        engine: Engine,
        make_slot: Callable[[], Slot],
        *,
        slots: int,
        threads: int,
        consumer: Consumer,
        recorder: Recorder,
        budget_nbytes: int,
    ) -> None:
        self._work, self._engine, self._make_slot = work, engine, make_slot
        self._consumer, self._recorder, self._budget_nbytes = consumer, recorder, budget_nbytes
        # Where the device is behind its host, what was let go last is what it will read last.
        self._ring = Ring(slots, oldest_first=engine.far)
        self._slots: dict[int, Slot] = {}
        self._errors: dict[int, BaseException] = {}
        self._tasks: Iterator[Any] = iter(())
        self._lock = threading.RLock()  # a feed may be collected, and so closed, while this very thread holds it
        self._may_fill = threading.Condition(self._lock)
        self._may_take = threading.Condition(self._lock)
        self._helped = threading.Condition(self._lock)
        self._helping: set[int] = set()  # threads of consumers inside a fill
        self._turn: AbstractContextManager[Any] = threading.Lock() if work.in_order else nullcontext()
        self._closed = self._given_back = False
        self._generation = 0
        self._pid = os.getpid()
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"forebay-{worker}", daemon=True)
            for worker in range(threads)
        ]
        self._started = False

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def goes_on(self) -> bool:
        """Whether the epoch after the one under way is begun before it is asked for."""
        return self._work.goes_on

    def go_on(self) -> int:
        """Let a new epoch take over where the last one ended; its number, to take groups by."""
        self._check_usable()
        with self._lock:
            self._generation += 1
            return self._generation

    def restart(self, cursor: Cursor) -> int:
        """Begin again at the cursor; whatever was filled and not taken is forgotten."""
        self._check_usable()  # before the lock, which a thread that a fork left behind may hold for ever
        with self._lock:
            generation = self.go_on()
            self._ring.restart()
            self._errors.clear()
            self._tasks = _with_failure(self._work.tasks(cursor))
            self._consumer.release()
            if not self._queues_only():
                self._may_fill.notify_all()
            self._may_take.notify_all()
            if not self._started:
                self._started = True
                for thread in self._threads:
                    thread.start()
        return generation

    def take(self, generation: int) -> Slot | None:
        """The next group's slot, in order; None at the end."""
        self._check_usable()
        self._consumer.come()
        with self._lock, self._engine.visit():
            self._check_wanted(generation)
            self._reclaim()
            while not self._errors and self._queues_only() and self._help():
                self._check_wanted(generation)  # telling a device takes less than telling a thread to
            slot = self._deliver()
            if slot is None and not self._ring.ended:
                slot = self._await(generation)
        if slot is None or slot.group is None:
            return None
        self._engine.await_arrival(slot.memory)
        self._consumer.leave(slot.group.batches)
        return slot

    def close(self) -> None:
        """End every thread and give everything back; safe to call twice and from anywhere."""
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads, and its parent still uses the rest
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._consumer.close()
            self._may_fill.notify_all()
            self._may_take.notify_all()
        self._work.stop()
        self._join()
        self._close_rest()

    def _close_rest(self) -> None:
        """Give back what threads work with, once none of them is left: one may be inside the user's code for long."""
        current = threading.current_thread()
        with self._lock:
            alive = any(thread.is_alive() and thread is not current for thread in self._threads)
            if alive or self._helping or not self._closed or self._given_back:
                return
            self._given_back = True
        with ExitStack() as stack:  # all of it, whatever fails
            stack.callback(self._slots.clear)
            stack.callback(self._engine.close)
            for slot in self._slots.values():
                stack.callback(slot.close)
            stack.callback(self._work.close)

    # The consumer's side; all of it under the lock

    def _await(self, generation: int) -> Slot | None:
        """The next group when it is ready; until then the consumer helps to fill, where that cannot hold it up."""
        began = time.perf_counter()
        self._consumer.wait()
        try:
            while (slot := self._deliver()) is None and not self._ring.ended:
                if not ((self._work.quick or self._queues_only()) and self._help()):
                    self._may_fill.notify()
                    self._may_take.wait(PATIENCE_SECONDS if self._work.in_order else None)
                self._check_wanted(generation)
        finally:
            self._consumer.waiting = False
            self._recorder.add("wait", time.perf_counter() - began)
        return slot

    def _help(self) -> bool:
        """Fill a group on the consumer's own thread rather than sleep: waking a thread costs as much as a group."""
        job = self._claim()
        if job is None:
            return False
        (fill, task), worker = job, len(self._threads)
        self._helping.add(threading.get_ident())
        self._lock.release()
        try:
            self._complete(fill, self._begin(fill, task, worker), worker)
        except BaseException as error:
            self._fail(fill, error)  # raised where its group is reached
            if not isinstance(error, Exception):  # Ctrl-C, on this very thread
                raise
        finally:
            self._lock.acquire()
            self._helping.discard(threading.get_ident())
            if self._closed:
                self._close_rest()
                self._helped.notify_all()
        return True

    def _deliver(self) -> Slot | None:
        error = self._errors.pop(self._ring.next_sequence, None)
        if error is not None:
            self._ring.end(self._ring.next_sequence)
            raise _not_an_end(error)
        number = self._ring.deliver()
        if number is None:
            return None
        if not self._queues_only():
            self._may_fill.notify()
        return self._slots[number]

    def _queues_only(self) -> bool:
        """Whether the next slot may as well be filled here; only a thread of our own makes new ones."""
        slot = self._slots.get(-1 if self._ring.next_slot is None else self._ring.next_slot)
        return slot is not None and self._work.queues_only(slot)

    def _reclaim(self) -> None:
        """Take back what nobody sees any more, and let go of what somebody keeps for good."""
        ended = [number for number in self._ring.lent if self._slots[number].lease.ended]
        if ended and self._engine.reclaim([self._slots[number].memory for number in ended]):
            for number in ended:
                self._ring.release(number)
        self._ring.forget()
        for number in [number for number in self._slots if self._ring.state(number) is None]:
            self._slots.pop(number).close()

    def _check_wanted(self, generation: int) -> None:
        self._raise_if_closed()
        if generation != self._generation:
            raise FeedError("another iteration of this feed began: this one has ended.")

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise FeedClosedError("the feed was closed: make a new one with pipeline.feed(...).")

    def _check_usable(self) -> None:
        self._raise_if_closed()
        if os.getpid() != self._pid:
            raise FeedError(
                f"this feed was started in process {self._pid} and its threads stayed there when the process forked. "
                "Make the feed in the process that uses it, or start processes with the 'spawn' method."
            )

    # The workers' side

    def _run(self, worker: int) -> None:
        self._engine.attend()
        try:
            while self._work_once(worker):
                pass
        finally:
            self._close_rest()

    def _work_once(self, worker: int) -> bool:
        """One group, from asking for it to telling of it; False when there is no more to do, ever."""
        fill: Fill | None = None
        try:
            with self._turn:
                fill, task = self._next_job()
                if fill is None:
                    return False
                begun = self._begin(fill, task, worker)
            group = self._complete(fill, begun, worker)
        except BaseException as error:  # whatever it is, it belongs to the consumer
            if fill is None:
                raise
            self._fail(fill, error)
            return True
        if group is not None:
            with suppress(Exception):  # nobody waits for this; where it is needed, it is done and told of again
                self._work.prepare(group)
        return True

    def _begin(self, fill: Fill, task: Any, worker: int) -> Any | None:
        if isinstance(task, _Failure):
            raise task.error
        slot = self._slot(fill.slot)
        self._engine.await_host(slot.memory)
        return self._work.read(slot, task, worker)

    def _complete(self, fill: Fill, begun: Any | None, worker: int) -> Group | None:
        slot, group = self._slots[fill.slot], None
        if begun is not None:
            slot.group = group = self._work.finish(slot, begun, worker)
            slot.send()
        self._tell(fill, ended=begun is None)
        return group

    def _next_job(self) -> tuple[Fill | None, Any]:
        with self._lock:
            while not self._closed:
                job = self._claim()
                if job is not None:
                    return job
                self._may_fill.wait()
        return None, None

    def _claim(self) -> tuple[Fill, Any] | None:
        """A slot and what to fill it with, if there are both; under the lock."""
        fill = self._ring.fill()
        if fill is None:
            return None
        try:
            task = next(self._tasks, _NO_TASK)
        except BaseException:
            self._ring.unfill(fill)
            raise
        if task is not _NO_TASK:
            return fill, task
        self._ring.emptied(fill.slot)
        self._may_take.notify()
        return None

    def _slot(self, number: int) -> Slot:
        if number not in self._slots:
            made = self._make_slot()
            with self._lock:
                self._slots[number] = made
                self._ring.made(number)
        return self._slots[number]

    def _tell(self, fill: Fill, *, ended: bool) -> None:
        with self._lock:
            # Batches that differ in size may outgrow what was planned for them: fewer are kept ready then.
            nbytes = self._slots[fill.slot].nbytes
            self._ring.slots = max(1, min(self._ring.slots, self._budget_nbytes // nbytes - USUALLY_LENT))
            if ended:
                self._ring.emptied(fill.slot)
            else:
                self._note_failure(self._ring.filled(fill.slot), self._slots[fill.slot])
            # Waking the consumer takes the interpreter from a stream; it looks by itself after a moment.
            if ended or not self._work.in_order or self._ring.full:
                self._may_take.notify()

    def _fail(self, fill: Fill, error: BaseException) -> None:
        with self._lock:
            sequence = self._ring.failed(fill.slot)
            if sequence is not None:
                self._errors.setdefault(sequence, error)
            self._may_take.notify()

    def _note_failure(self, sequence: int | None, slot: Slot) -> None:
        """What kept a slot from being filled to its end comes after what it holds, before anything later."""
        error, slot.failure = slot.failure, None
        if error is not None and sequence is not None:
            self._errors[sequence + 1] = error

    def _join(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            own = {threading.get_ident()}  # a signal's handler may close on a thread that fills
            self._helped.wait_for(lambda: self._helping <= own, max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() and thread is not threading.current_thread() for thread in self._threads):
            _log.warning("a forebay thread is still inside the user's code after close(); it is left behind.")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Stands for a group of which it could not be said what to read."""

    error: Exception


def _with_failure(tasks: Iterator[Any]) -> Iterator[Any]:
    """Tasks, and what ended them before their time: it comes out where its group would have been reached."""
    try:
        yield from tasks
    except Exception as error:
        yield _Failure(error)


def _not_an_end(error: BaseException) -> BaseException:
    """A StopIteration out of a map would end the epoch without a word: it becomes an error, as in a generator."""
    if not isinstance(error, StopIteration):
        return error
    told = RuntimeError("a map raised StopIteration, which only a generator may do to end itself.")
    told.__cause__ = error
    return told
