"""The parent's side of one worker process: its pipe, its life, and which blocks it has seen."""

import multiprocessing
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

from forebay.core.shared_memory import Handle, SharedBlock
from forebay.errors import FeedClosedError, ForebayError, PipelineError, WorkerError
from forebay.transforms.workers.pickling import Failure, dump
from forebay.transforms.workers.process_main import serve

__all__ = ["Driver", "describe_exit"]

_REAP_SECONDS = 1.0
_SPAWN = multiprocessing.get_context("spawn")


class Driver:
    """One worker process, driven by one thread at a time."""

    def __init__(self, index: int, work_name: str, payload: bytes, closed: threading.Event) -> None:
        self._index, self._work_name, self._payload, self._closed = index, work_name, payload, closed
        self._lock = threading.Lock()  # held while a call is under way: whoever gets it finds the worker idle
        self._ended = False
        self._start()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def pid(self) -> int | None:
        return self._pid

    def __str__(self) -> str:
        return f"worker {self._index} (pid {self._pid})"

    def call(self, block: SharedBlock, task: Any) -> Any:
        with self._lock:
            self._refuse_if_closed()
            if not self._ready:
                self._send_work()
            retired = self._retired()
            answer = pickle.loads(self._exchange(dump((block.handle, retired, task))))
            self._remember(block, retired)
        if isinstance(answer, Failure):
            raise answer.rebuild(str(self))
        return answer

    def restart(self) -> None:
        with self._lock:
            self._refuse_if_closed()
            before = self._process, self._connection
            self._process.kill()
            self._start()
            _reap(*before)

    def ask_to_end(self) -> None:
        """An idle worker sees its pipe end and leaves; one at work, or still starting, is not waited for."""
        if not self._lock.acquire(blocking=False):
            self._process.kill()
            return
        try:
            self._connection.close()
            if not self._ready:
                self._process.kill()
        finally:
            self._lock.release()

    def end(self, deadline: float) -> None:
        """Wait for the process until the deadline, then kill it. A thread in `call` has seen the pipe end by then."""
        locked = self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()) + _REAP_SECONDS)
        try:
            if _exit_code(self._process, deadline) is None:
                self._process.kill()
            _reap(self._process, self._connection)
            self._ended = True
        finally:
            if locked:
                self._lock.release()

    def _start(self) -> None:
        self._ready = False
        self._seen: dict[Handle, weakref.ref[SharedBlock]] = {}
        self._connection, self._process = _spawn(self._index)
        self._pid = self._process.pid

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise FeedClosedError(f"{self} was closed: its feed was closed, or left with an error.")

    def _send_work(self) -> None:
        """Not sent with the start of the process: that would wait for a child to import the script, one by one."""
        answer = pickle.loads(self._exchange(self._payload))
        if isinstance(answer, Failure):
            raise PipelineError(
                f"{self} could not load {self._work_name}: {answer.summary}. Functions typed into a notebook "
                'or a prompt exist only there: put it into a module, install cloudpickle, or use where="thread".'
            ) from answer.rebuild(str(self))
        self._ready = True

    def _retired(self) -> list[Handle]:
        """The blocks this worker still maps, and nobody will send it again."""
        return [handle for handle, seen in self._seen.items() if (block := seen()) is None or block.closed]

    def _remember(self, block: SharedBlock, retired: list[Handle]) -> None:
        for handle in retired:
            del self._seen[handle]
        if block.handle not in self._seen:
            self._seen[block.handle] = weakref.ref(block)

    def _exchange(self, message: bytes) -> bytes:
        try:
            self._connection.send_bytes(message)
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None
        except BaseException:
            # Ctrl-C: the worker still writes to the block, and its answer would be taken for that of the next call.
            self._process.terminate()
            self._process.join(_REAP_SECONDS)
            raise

    def _death(self) -> ForebayError:
        exit_code = _exit_code(self._process, time.monotonic() + _REAP_SECONDS)
        if self._closed.is_set():
            return FeedClosedError(f"{self} was closed while it ran {self._work_name}.")
        state = f"which runs {self._work_name}" if self._ready else "which was starting"
        end = describe_exit(exit_code, ready=self._ready)
        return WorkerError(f"{self}, {state}, {end}.")


def _spawn(index: int) -> tuple[Connection, SpawnProcess]:
    ours, theirs = _SPAWN.Pipe(duplex=True)
    process = _SPAWN.Process(target=serve, args=(theirs,), name=f"forebay-worker-{index}", daemon=True)
    try:
        with _interrupts_held():
            process.start()
    except RuntimeError:
        raise WorkerError(
            "worker processes cannot be started while a worker imports this script: put what the script does under "
            '`if __name__ == "__main__":`.'
        ) from None
    except (OSError, AssertionError) as error:  # the latter: this process is itself a daemonic worker of another pool
        raise WorkerError(f'could not start worker {index}: {error}. Use fewer workers, or where="thread".') from error
    finally:
        theirs.close()  # so that the worker holds the only copy, and its death ends the pipe
    return ours, process


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Children start with Ctrl-C held back until they ignore it, or it would strike them amid their imports."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reap(process: SpawnProcess, connection: Connection) -> None:
    """Leave no zombie and no descriptor behind."""
    connection.close()
    _exit_code(process, time.monotonic() + _REAP_SECONDS)
    with suppress(ValueError):  # not even SIGKILL ended it: it hangs in the kernel, and goes when that lets it
        process.close()


def _exit_code(process: SpawnProcess, deadline: float) -> int | None:
    """How a process ended, or None if it has not by the deadline."""
    while process.exitcode is None and time.monotonic() < deadline:
        process.join(0.05)  # in a loop: it returns early, without a code, while another thread takes that
    return process.exitcode


_GUARD = (
    "What it said is on stderr. If this script starts work at its top level, put that under "
    '`if __name__ == "__main__":`, since every worker imports the script first'
)
_CRASH = "Native code crashed: the Python lines it was called from are on stderr"
_SIGNALS = {
    "SIGKILL": "The kernel's out-of-memory killer does this: look at `dmesg` and the container's memory limit, then "
    "use fewer workers or smaller batches",
    "SIGBUS": "Shared memory ran out: look at the machine's and the container's memory limits",
    **dict.fromkeys(("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"), _CRASH),
}
_OUTSIDE = "Its pool does this after an interrupted call; otherwise somebody ended it from outside"
_EXIT = 'Something in it called os._exit(): run it with where="thread" to find the place'


def describe_exit(exit_code: int | None, *, ready: bool) -> str:
    """How a process ended and where to look, from its `multiprocessing` exit code.

    >>> describe_exit(-11, ready=True)
    'was ended by SIGSEGV. Native code crashed: the Python lines it was called from are on stderr'
    """
    if exit_code is None:
        return "ended, and something else in this program took its exit code. What it said is on stderr"
    if exit_code < 0:
        name = _signal_name(-exit_code)
        return f"was ended by {name}. {_SIGNALS.get(name, _OUTSIDE)}"
    return f"ended with exit code {exit_code}. {_EXIT}" if ready else f"ended with exit code {exit_code}. {_GUARD}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
