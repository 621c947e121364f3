"""The main loop of a worker process: calls its function for each request."""

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

__all__ = ["READY", "WorkerFunction", "run_worker"]

WorkerFunction: TypeAlias = Callable[[Any, Any], Any]  # (memory, task) -> result

READY = "ready"

_PARENT_CHECK_SECONDS = 1.0
_STDERR = 2


def run_worker(connection: Connection) -> None:
    """Receive the function, then answer calls until the pipe ends."""
    _set_up_process()
    try:
        function = _receive_function(connection)
        _answer_calls(connection, function)
    except (EOFError, OSError):  # from the pipe; exceptions of the function are sent through it
        return


def _set_up_process() -> None:
    """Set up signals, crash reports on stderr, and the watch on the parent.

    The terminal sends Ctrl-C to every process. Workers ignore it, because the parent decides when they end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable(_STDERR)
    threading.Thread(target=_exit_with_parent, name="forebay-parent-watch", daemon=True).start()


def _exit_with_parent() -> None:
    """End the process when the parent is gone.

    An idle worker notices that the pipe is closed. This thread covers a worker in a long call, and a pipe that
    another forked process still holds open.
    """
    parent, parent_pid = multiprocessing.parent_process(), os.getppid()
    while parent is not None and parent.is_alive() and os.getppid() == parent_pid:
        parent.join(timeout=_PARENT_CHECK_SECONDS)
    os._exit(1)


def _receive_function(connection: Connection) -> WorkerFunction:
    payload = connection.recv_bytes()
    try:
        function: WorkerFunction = pickle.loads(payload)
    except BaseException as error:
        connection.send_bytes(dump(Failure.of(error)))
        sys.exit(1)
    connection.send_bytes(dump(READY))
    return function


def _answer_calls(connection: Connection, function: WorkerFunction) -> None:
    attached: dict[BlockHandle, SharedBlock] = {}
    while True:
        request = connection.recv_bytes()
        connection.send_bytes(_answer(request, function, attached))


def _answer(request: bytes, function: WorkerFunction, attached: dict[BlockHandle, SharedBlock]) -> bytes:
    try:
        handle, retired, task = pickle.loads(request)
        for retired_handle in retired:
            attached.pop(retired_handle, None)
        block = attached.get(handle)
        if block is None:
            block = attached[handle] = SharedBlock.attach(handle)
        return dump(function(block.memory, task))
    except BaseException as error:
        return dump(Failure.of(error))
