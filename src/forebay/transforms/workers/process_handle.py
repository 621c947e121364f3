"""`ProcessHandle`: starts, calls and ends one worker process of a pool."""

import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from forebay.core.shared_memory import BlockHandle, SharedBlock
from forebay.errors import FeedClosedError, ForebayError, PipelineError, WorkerError
from forebay.transforms.workers.pickling import Failure, dump
from forebay.transforms.workers.process_main import open_standard_descriptors, run_worker

__all__ = ["ProcessHandle", "describe_exit"]

_REAP_SECONDS = 1.0  # seconds to wait for the exit code of a process that was killed or has died
_SPAWN = multiprocessing.get_context("spawn")

_processes: "weakref.WeakSet[SpawnProcess]" = weakref.WeakSet()  # all worker processes of this process


class ProcessHandle:
    """One worker process, which one thread at a time calls through a pipe."""

    def __init__(self, index: int, function_name: str, payload: bytes, closed: threading.Event) -> None:
        self._index, self._function_name, self._payload, self._closed = index, function_name, payload, closed
        self._lock = threading.Lock()  # held during a call, so the worker is idle when a thread acquires it
        self._has_ended = False
        self._start()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def pid(self) -> int | None:
        return self._pid

    def __str__(self) -> str:
        return f"worker {self._index} (pid {self._pid})"

    def call(self, block: SharedBlock, task: Any) -> Any:
        """Run one task in the worker; return its result or raise its exception."""
        with self._lock:
            self._raise_if_closed()
            if not self._is_ready:
                self._send_function()
            retired = self._find_retired_blocks()
            answer = pickle.loads(self._exchange(dump((block.handle, retired, task))))  # nosec B301  # our own worker
            self._update_mapped_blocks(block, retired)
        if isinstance(answer, Failure):
            raise answer.rebuild(str(self))
        return answer

    def restart(self) -> None:
        """Kill the process and start a new one."""
        with self._lock:
            self._raise_if_closed()
            old_process, old_connection = self._process, self._connection
            old_process.kill()
            self._start()
            _reap(old_process, old_connection)

    def request_exit(self) -> None:
        """End the worker without waiting for it.

        An idle worker exits because its pipe is closed. A busy or starting worker is killed.
        """
        if not self._lock.acquire(blocking=False):
            self._process.kill()
            return
        try:
            self._connection.close()
            if not self._is_ready:
                self._process.kill()
        finally:
            self._lock.release()

    def wait_or_kill(self, deadline: float) -> None:
        """Wait until the process ends, kill it at the deadline, and release it."""
        # A thread in `call` releases the lock when it notices that the process has ended.
        has_lock = self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()) + _REAP_SECONDS)
        try:
            if _wait_for_exit_code(self._process, deadline) is None:
                self._process.kill()
            _reap(self._process, self._connection)
            self._has_ended = True
        finally:
            if has_lock:
                self._lock.release()

    def _start(self) -> None:
        self._is_ready = False  # True once the worker has loaded the function
        self._mapped_blocks: dict[BlockHandle, weakref.ref[SharedBlock]] = {}  # that the worker has mapped
        self._connection, self._process = _spawn(self._index)
        self._pid = self._process.pid

    def _raise_if_closed(self) -> None:
        if self._closed.is_set():
            raise FeedClosedError(f"{self} was closed, because its feed was closed or failed. Create a new feed.")

    def _send_function(self) -> None:
        """Send the function to the worker, before its first task.

        `_start` does not send it, because sending blocks until the worker has imported the script. Workers would then
        start one after the other.
        """
        answer = pickle.loads(self._exchange(self._payload))  # nosec B301  # our own worker
        if isinstance(answer, Failure):
            raise PipelineError(
                f"{self} could not load {self._function_name}: {answer.summary}. Workers cannot import a function that "
                'was typed into a notebook or prompt. Move it to a module, install cloudpickle, or use where="thread".'
            ) from answer.rebuild(str(self))
        self._is_ready = True

    def _find_retired_blocks(self) -> list[BlockHandle]:
        """Return the blocks that this worker still maps, but that were closed or freed."""
        return [handle for handle, mapped in self._mapped_blocks.items() if (block := mapped()) is None or block.closed]

    def _update_mapped_blocks(self, block: SharedBlock, retired: list[BlockHandle]) -> None:
        for handle in retired:
            del self._mapped_blocks[handle]
        if block.handle not in self._mapped_blocks:
            self._mapped_blocks[block.handle] = weakref.ref(block)

    def _exchange(self, message: bytes) -> bytes:
        """Send a message and return the answer of the worker."""
        try:
            self._connection.send_bytes(message)
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death_error() from None
        except BaseException:
            # After Ctrl-C, the worker would still write to the block, and the next call would receive the old answer.
            self._process.terminate()
            self._process.join(_REAP_SECONDS)
            raise

    def _death_error(self) -> ForebayError:
        exit_code = _wait_for_exit_code(self._process, time.monotonic() + _REAP_SECONDS)
        if self._closed.is_set():
            return FeedClosedError(f"{self} was closed while it ran {self._function_name}. Create a new feed.")
        state = f"which runs {self._function_name}" if self._is_ready else "which was starting"
        return WorkerError(f"{self}, {state}, {describe_exit(exit_code, ready=self._is_ready)}.")


def _spawn(index: int) -> tuple[Connection, SpawnProcess]:
    """Start a worker process. Return the parent's end of the pipe, and the process."""
    try:
        open_standard_descriptors()
        parent_end, worker_end = _SPAWN.Pipe(duplex=True)
        # Close the worker's end in this process. Then only the worker has it, and the pipe closes when the worker dies.
        with worker_end, _block_interrupts():
            process = _SPAWN.Process(target=run_worker, args=(worker_end,), name=f"forebay-worker-{index}", daemon=True)
            _processes.add(process)
            process.start()
    except RuntimeError:
        raise WorkerError(
            "worker processes cannot be started while a worker imports this script. Put the code that starts work "
            'under `if __name__ == "__main__":`.'
        ) from None
    except (OSError, AssertionError) as error:  # AssertionError: this process is a daemon of another pool
        raise WorkerError(f'could not start worker {index}: {error}. Use fewer workers, or where="thread".') from error
    return parent_end, process


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block SIGINT while a worker starts.

    Otherwise Ctrl-C could interrupt the imports of the worker before it ignores SIGINT.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # if `process.start` started the tracker, the tracker would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _disown_processes() -> None:
    """Remove the workers from the list of children that `multiprocessing` keeps.

    This runs in a forked process. At the exit of this process, `multiprocessing` would otherwise end the workers of the
    parent.
    """
    children: set[Any] = multiprocessing.process._children  # type: ignore[attr-defined]  # no public function removes one
    children.difference_update(_processes)
    _processes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_processes)


def _reap(process: SpawnProcess, connection: Connection) -> None:
    """Close the pipe and collect the exit code, so that no zombie process remains."""
    connection.close()
    _wait_for_exit_code(process, time.monotonic() + _REAP_SECONDS)
    with suppress(ValueError):  # SIGKILL did not end the process, because it hangs in a kernel call
        process.close()


def _wait_for_exit_code(process: SpawnProcess, deadline: float) -> int | None:
    """Return the exit code; None if the process still runs at the deadline."""
    while process.exitcode is None and time.monotonic() < deadline:
        process.join(0.05)  # `join` may return without an exit code if another thread collects it
    return process.exitcode


_MISSING_GUARD_HINT = (
    "Read its output on stderr. If this script starts work at its top level, put that code under "
    '`if __name__ == "__main__":`, because every worker first imports the script'
)
_CRASH_HINT = "Native code crashed. Read the Python traceback on stderr"
_SIGNAL_HINTS = {
    "SIGKILL": "The out-of-memory killer of the kernel sends this signal. Check `dmesg` and the memory limit of the "
    "container, then use fewer workers or smaller batches",
    "SIGBUS": "Shared memory is full. Check the memory limits of the machine and of the container",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"), _CRASH_HINT),
}
_OTHER_SIGNAL_HINT = "Forebay sends SIGTERM after Ctrl-C interrupts a call. Any other signal came from another process"
_EXIT_HINT = 'The function called os._exit(). Run it with where="thread" to find the call'


def describe_exit(exit_code: int | None, *, ready: bool) -> str:
    """Return a description of a `multiprocessing` exit code, with a hint about its cause.

    >>> describe_exit(-11, ready=True)
    'was ended by SIGSEGV. Native code crashed. Read the Python traceback on stderr'
    """
    if exit_code is None:
        return "ended, but other code in this program collected its exit code. Read its output on stderr"
    if exit_code < 0:
        name = _signal_name(-exit_code)
        return f"was ended by {name}. {_SIGNAL_HINTS.get(name, _OTHER_SIGNAL_HINT)}"
    return f"ended with exit code {exit_code}. {_EXIT_HINT if ready else _MISSING_GUARD_HINT}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
