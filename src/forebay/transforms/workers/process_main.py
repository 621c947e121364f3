"""The main loop of a worker process: it calls one function for each request."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from forebay.core.shared_memory import BlockHandle, SharedBlock
from forebay.transforms.workers.pickling import Failure, dump

__all__ = ["READY", "WorkerFunction", "open_standard_descriptors", "run_worker"]

WorkerFunction: TypeAlias = Callable[[Any, Any], Any]  # (memory, task) -> result

READY = "ready"  # answer of a worker that has loaded its function

_PARENT_CHECK_SECONDS = 1.0  # seconds between two checks that the parent process is alive
_STDERR = 2  # file descriptor; 0 and 1 are stdin and stdout


def run_worker(connection: Connection) -> None:
    """Receive the function, then answer requests until the pipe is closed."""
    _set_up_process()
    try:
        function = _receive_function(connection)
        _answer_requests(connection, function)
    except (EOFError, OSError):  # from the pipe; exceptions of the function are sent through it
        return


def open_standard_descriptors() -> None:
    """Open the null device as stdin, stdout and stderr if the script has closed these.

    Otherwise a pipe or shared memory could get the number of a closed descriptor, and the script would write its output
    to it. `multiprocessing` also cannot pass a pipe with such a number to a new process.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _set_up_process() -> None:
    """Set up signals, crash reports on stderr, and the thread that watches the parent.

    After Ctrl-C, the terminal sends SIGINT to every process. Workers ignore this signal, because the parent ends them.
    """
    open_standard_descriptors()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable(_STDERR)
    threading.Thread(target=_exit_with_parent, name="forebay-parent-watch", daemon=True).start()


def _exit_with_parent() -> None:
    """End this process when the parent has ended.

    An idle worker notices the end of the parent, because the pipe closes. This thread is for a worker in a long call,
    and for a pipe that a forked process keeps open.
    """
    parent, parent_pid = multiprocessing.parent_process(), os.getppid()
    while parent is not None and parent.is_alive() and os.getppid() == parent_pid:
        parent.join(timeout=_PARENT_CHECK_SECONDS)
    os._exit(1)


def _receive_function(connection: Connection) -> WorkerFunction:
    payload = connection.recv_bytes()
    try:
        function: WorkerFunction = pickle.loads(payload)  # nosec B301  # from the parent process
    except BaseException as error:
        connection.send_bytes(dump(Failure.of(error)))
        sys.exit(1)
    connection.send_bytes(dump(READY))
    return function


def _answer_requests(connection: Connection, function: WorkerFunction) -> None:
    attached_blocks: dict[BlockHandle, SharedBlock] = {}
    worker_pid = os.getpid()
    while True:
        request = connection.recv_bytes()
        try:
            answer = dump(_run_task(request, function, attached_blocks))
        except BaseException as error:
            if os.getpid() != worker_pid:
                raise
            answer = dump(Failure.of(error))
        if os.getpid() != worker_pid:  # the function has forked this process; only the worker may answer
            return
        connection.send_bytes(answer)


def _run_task(request: bytes, function: WorkerFunction, attached_blocks: dict[BlockHandle, SharedBlock]) -> Any:
    """Run the task of a request, and return its result."""
    handle, retired, task = pickle.loads(request)  # nosec B301  # from the parent process
    for retired_handle in retired:
        attached_blocks.pop(retired_handle, None)
    block = attached_blocks.get(handle)
    if block is None:
        block = attached_blocks[handle] = SharedBlock.attach(handle)
    return function(block.memory, task)
