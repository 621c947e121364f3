"""The child's side of a process pool: one function, called on shared memory whenever the pool asks."""

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

from forebay.core.shared_memory import Handle, SharedBlock
from forebay.transforms.workers.pickling import Failure, dump

__all__ = ["READY", "Work", "serve"]

Work: TypeAlias = Callable[[Any, Any], Any]  # (memory, task) -> result

READY = "ready"

_PARENT_CHECK_SECONDS = 1.0
_STDERR = 2


def serve(connection: Connection) -> None:
    """Take the function, then answer calls until the pool closes its end or dies."""
    _settle()
    try:
        work = _receive_work(connection)
        _answer_calls(connection, work)
    except (EOFError, OSError):  # of the pipe: what the function raises goes over it
        return


def _settle() -> None:
    """Ctrl-C reaches the whole terminal: the parent decides what ends, a worker only follows it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable(_STDERR)
    threading.Thread(target=_end_with_parent, name="forebay-parent-watch", daemon=True).start()


def _end_with_parent() -> None:
    """The pipe's end tells an idle worker; this tells one in a long call, or whose pipe a forked stranger holds."""
    parent, parent_pid = multiprocessing.parent_process(), os.getppid()
    while parent is not None and parent.is_alive() and os.getppid() == parent_pid:
        parent.join(timeout=_PARENT_CHECK_SECONDS)
    os._exit(1)


def _receive_work(connection: Connection) -> Work:
    payload = connection.recv_bytes()
    try:
        work: Work = pickle.loads(payload)
    except BaseException as error:
        connection.send_bytes(dump(Failure.of(error)))
        sys.exit(1)
    connection.send_bytes(dump(READY))
    return work


def _answer_calls(connection: Connection, work: Work) -> None:
    attached: dict[Handle, SharedBlock] = {}
    while True:
        request = connection.recv_bytes()
        connection.send_bytes(_answer(request, work, attached))


def _answer(request: bytes, work: Work, attached: dict[Handle, SharedBlock]) -> bytes:
    try:
        handle, retired, task = pickle.loads(request)
        for gone in retired:
            attached.pop(gone, None)
        block = attached.get(handle)
        if block is None:
            block = attached[handle] = SharedBlock.attach(handle)
        return dump(work(block.memory, task))
    except BaseException as error:
        return dump(Failure.of(error))
