"""Decoder threads: they decode the rows of a group in parallel, one thread for each core.

Decoding an image takes a hundred times as long as copying it. With one thread per group, one group per core would be in
memory, and a batch of 256 images takes tens of MiB. So all cores decode one group, then the next. All sources of a
process share these threads, because two feeds have no more cores than one.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from forebay.core.machine import Machine

__all__ = ["decode_rows", "decoder_thread_count"]

DecodeRow: TypeAlias = Callable[[int, int], None]  # (position in the group, row number)


def decode_rows(decode_row: DecodeRow, numbers: Sequence[int]) -> None:
    """Call `decode_row(position, number)` for each row number, on all decoder threads.

    If rows fail, raise the error of the first failed row. `decode_row` must not call this function.

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
        pool = _thread_pool(os.getpid())
        wait([pool.submit(task.run) for _ in range(threads)])
    if task.errors:
        error = min(task.errors, key=lambda failure: failure[0])[1]
        try:
            raise error
        finally:  # the error refers to the task through its traceback; the rows of the group must not stay alive
            task.errors.clear()
            del error


@cache
def decoder_thread_count() -> int:
    """Return the number of decoder threads: one for each core that this process may use."""
    return Machine.detect().cores


@dataclass(slots=True)
class _DecodeTask:
    """The rows of one group. Each thread takes the next row until none is left."""

    decode_row: DecodeRow
    pending: deque[tuple[int, int]]  # (position, row number); `popleft` is atomic
    errors: list[tuple[int, BaseException]] = field(default_factory=list)  # with the position of the row

    def run(self) -> None:
        """Decode rows until none is left or a row fails.

        Threads take rows in order. So when a row fails, some thread has taken each row before it and still completes
        it.
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
    """Return the threads of this process. A forked process needs its own, because threads do not survive a fork."""
    return ThreadPoolExecutor(decoder_thread_count(), thread_name_prefix="forebay-decoder")
