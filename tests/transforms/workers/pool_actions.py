"""The function that workers of process pools run in tests, and a wait with a deadline."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

NBYTES = 1 << 16
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def act(memory, task):
    """Run the action that the task names. Every worker runs this function."""
    verb, *arguments = task
    return ACTIONS[verb](memory, *arguments)


def fill(memory, value):
    array = np.ndarray((NBYTES,), "uint8", buffer=memory)
    array[:] = value
    return os.getpid(), int(array[0])


def fail(memory, kind, *arguments):
    raise kind(*arguments)


def sleep(memory, mark):
    Path(mark).touch()
    time.sleep(600)


def meet(memory, own, other):
    """Return when another worker is in its call, too."""
    Path(own).touch()
    wait_until(Path(other).exists)


def attached_blocks(memory):
    return Path("/proc/self/maps").read_text().count("memfd:forebay")


ACTIONS = {
    "fill": fill,
    "fail": fail,
    "sleep": sleep,
    "meet": meet,
    "blocks": attached_blocks,
    "echo": lambda memory, value: value,
    "unpicklable": lambda memory: threading.Lock(),
    "exit": lambda memory, code: os._exit(code),
    "sys.exit": lambda memory: sys.exit(3),
    "abort": lambda memory: os.abort(),
    "interrupt": lambda memory: os.kill(os.getpid(), signal.SIGINT),
    "loaded": lambda memory: sorted({name.partition(".")[0] for name in sys.modules}),
}


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.01)
