"""Decoder threads: one thread per core, which together decode the rows of a group.

Decoding an image takes about a hundred times as long as copying it. If each core decoded a group of its own, one group
per core would be in memory, and a batch of 256 images takes tens of MiB. So all cores decode one group together, and
after it the next group. All sources of a process share these threads, because a second feed brings no further cores.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from forebay.core.machine import Machine

__all__ = ["decode_rows", "decoder_thread_count"]

DecodeRow: TypeAlias = Callable[[int, int], None]  # (position in the group, row number)


def decode_rows(decode_row: DecodeRow, numbers: Sequence[int]) -> None:
    """Call `decode_row(position, number)` for each row number, on all decoder threads.

    If rows fail, raise the error of the first failed row. After an error or an interrupt, no thread still decodes rows
    of this group. `decode_row` must not call this function.

    >>> rows = [0, 0, 0]
    >>> decode_rows(lambda position, number: rows.__setitem__(position, number * 10), [7, 8, 9])
    >>> rows
    [70, 80, 90]
    """
    threads = min(decoder_thread_count(), len(numbers))
    task = _DecodeTask(decode_row, deque(enumerate(numbers)))
    if threads <= 1:
        task.run()
    else:
        _run_on_pool(task, threads)
    if task.errors:
        error = min(task.errors, key=lambda failure: failure[0])[1]
        try:
            raise error
        finally:  # the traceback of the error refers to the task. Break the cycle, to free the rows of the group.
            task.errors.clear()
            del error


def _run_on_pool(task: "_DecodeTask", threads: int) -> None:
    """Run a task on this number of decoder threads, and wait for them."""
    pool, futures = _thread_pool(os.getpid()), list[Future[None]]()
    try:
        for _ in range(threads):
            futures.append(pool.submit(task.run))
        wait(futures)
    except BaseException:  # KeyboardInterrupt. The caller may reuse the memory to which the threads write rows.
        task.pending.clear()
        wait(futures)
        raise


@cache
def decoder_thread_count() -> int:
    """Return the number of decoder threads: one for each core that this process may use."""
    return Machine.detect().cores


@dataclass(slots=True)
class _DecodeTask:
    """The rows of one group. Each thread takes one row after the other."""

    decode_row: DecodeRow
    pending: deque[tuple[int, int]]  # (position, row number); `popleft` is atomic
    errors: list[tuple[int, BaseException]] = field(default_factory=list)  # (position of the failed row, error)

    def run(self) -> None:
        """Decode rows until no row is left or a row fails.

        Threads take rows in order. So when a row fails, threads have already taken all rows before it, and complete
        them. `decode_rows` therefore finds the first failed row of the group.
        """
        while not self.errors:
            try:
                position, number = self.pending.popleft()
            except IndexError:
                return
            try:
                self.decode_row(position, number)
            except BaseException as error:  # `decode_rows` raises it
                self.errors.append((position, error))


@cache
def _thread_pool(process_id: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process.

    A forked process needs a pool of its own, because threads do not survive a fork.
    """
    return ThreadPoolExecutor(decoder_thread_count(), thread_name_prefix="forebay-decoder")
