"""Worker processes that run one function on shared memory, for maps that hold the GIL.

Processes are spawned, never forked: a fork copies locks that other threads hold, and CUDA does not survive it. What
crosses the pipe is small (which block, which task, the result); the rows stay where they are, in a `SharedBlock`.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

from forebay.core.shared_memory import SharedBlock
from forebay.errors import PipelineError
from forebay.transforms.workers.pickling import dump_work, name_of
from forebay.transforms.workers.process_handle import Driver
from forebay.transforms.workers.process_main import Work

__all__ = ["ProcessPool"]

_CLOSE_SECONDS = 1.0


class ProcessPool:
    """Processes that each hold `work(memory, task) -> result`, and one thread of the caller's to drive each.

    All processes start at once, and the first `run` of each waits until it is ready. They import the main script,
    as every spawned process does, so what a script does must stand under `if __name__ == "__main__":`.
    """

    def __init__(self, work: Work, workers: int) -> None:
        if workers < 1:
            raise PipelineError(f'a pool of {workers} processes runs nothing: ask for at least 1, or where="thread".')
        payload = dump_work(work)
        self._closed = threading.Event()
        self._closing = threading.Lock()
        self._drivers: list[Driver] = []
        try:
            for index in range(workers):
                self._drivers.append(Driver(index, name_of(work), payload, self._closed))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._drivers)

    @property
    def pids(self) -> list[int | None]:
        return [driver.pid for driver in self._drivers]

    def run(self, worker: int, block: SharedBlock, task: Any) -> Any:
        """What the function returns for this task, on the worker's own view of the block; waits without the GIL.

        An error of the function comes back with its own type and the worker's traceback as a note. `WorkerError`
        means that the process is gone, `FeedClosedError` that the pool was closed in the meantime.
        """
        return self._drivers[worker].call(block, task)

    def restart(self, worker: int) -> None:
        """Put a fresh process in the place of one that died."""
        self._drivers[worker].restart()

    def close(self) -> None:
        """End every process within seconds, whatever it does; whoever waits in `run` gets `FeedClosedError`."""
        self._closed.set()
        with self._closing:
            running = [driver for driver in self._drivers if not driver.ended]
            for driver in running:
                driver.ask_to_end()
            deadline = time.monotonic() + _CLOSE_SECONDS
            for driver in running:
                driver.end(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
