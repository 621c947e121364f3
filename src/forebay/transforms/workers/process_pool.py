"""A pool of worker processes that run one function on shared memory.

The pool is for maps that hold the GIL. It spawns processes and never forks them: a fork would copy locks that other
threads hold, and CUDA does not work in a forked process. The rows stay in a `SharedBlock`, a block of shared memory.
Only small messages cross the pipe to a worker: the handle of a block, a task and a result.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

from forebay.core.decision import function_name
from forebay.core.shared_memory import SharedBlock
from forebay.errors import PipelineError
from forebay.transforms.workers.pickling import dump_function
from forebay.transforms.workers.process_handle import ProcessHandle
from forebay.transforms.workers.process_main import WorkerFunction

__all__ = ["ProcessPool"]

_CLOSE_SECONDS = 1.0  # seconds that `close` waits for idle workers to exit before it kills them


class ProcessPool:
    """Worker processes that run `function(memory, task) -> result`.

    A worker runs one call at a time; all other threads that call the worker wait. All workers start at the same time.
    The first `run` of a worker waits until the worker is ready. Each worker imports the main script, as every spawned
    process does. A script must therefore start its work under `if __name__ == "__main__":`.
    """

    def __init__(self, function: WorkerFunction, workers: int) -> None:
        if workers < 1:
            raise PipelineError(f'a pool of {workers} processes is empty. Pass at least 1, or use where="thread".')
        payload = dump_function(function)
        self._closed = threading.Event()
        self._close_lock = threading.Lock()
        self._handles: list[ProcessHandle] = []
        try:
            for index in range(workers):
                self._handles.append(ProcessHandle(index, function_name(function), payload, self._closed))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def pids(self) -> list[int | None]:
        return [handle.pid for handle in self._handles]

    def run(self, worker: int, block: SharedBlock, task: Any) -> Any:
        """Call the function on the block in one worker, and return the result.

        The calling thread releases the GIL while it waits. An exception of the function keeps its type and has the
        worker's traceback as a note. `WorkerError` means that the process died, and `FeedClosedError` that the pool was
        closed before or during the call. `PipelineError` means that the worker could not load the function.
        """
        return self._handles[worker].call(block, task)

    def restart(self, worker: int) -> None:
        """Replace a dead process with a new one."""
        self._handles[worker].restart()

    def close(self) -> None:
        """End all workers within seconds. Threads that wait in `run` get `FeedClosedError`."""
        self._closed.set()
        with self._close_lock:
            running = [handle for handle in self._handles if not handle.has_ended]
            for handle in running:
                handle.request_exit()
            deadline = time.monotonic() + _CLOSE_SECONDS
            for handle in running:
                handle.wait_or_kill(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
