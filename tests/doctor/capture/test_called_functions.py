"""The name of the function that a line of the script calls. Threads wait in known calls."""

import sys
import threading
import time

import pytest

from forebay.doctor.capture.called_functions import CalledFunctions
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.model.events import PYTHON_CODE

gate = threading.Lock()
event = threading.Event()
MAX_SECONDS = 60  # until a thread waits in its call, on a busy machine


def acquire_global():
    gate.acquire()


def acquire_local():
    local = gate
    local.acquire()


def acquire_inside_an_expression():
    return [gate.acquire()]


def wait_for_event():
    event.wait()


def sleep():
    while gate.locked():
        time.sleep(0.2)


@pytest.fixture
def names_of():
    """Return a function that runs another function in a thread.

    The returned function returns the names of the calls in which the thread waits.
    """
    functions, threads = CalledFunctions(SourceLines()), []

    def names_of(function, expected):
        thread = threading.Thread(target=function)
        thread.start()
        threads.append(thread)
        names, end = set(), time.monotonic() + MAX_SECONDS
        while expected not in names and time.monotonic() < end:
            frame = sys._current_frames().get(thread.ident)
            line, name = functions.find(frame) if frame is not None else (-1, "")
            if line >= 0:
                names.add(name)
            del frame
            time.sleep(0.01)
        return names

    gate.acquire()
    event.clear()
    yield names_of
    event.set()
    for thread in threads:
        while thread.is_alive():
            if gate.locked():
                gate.release()
            thread.join(0.05)
    if gate.locked():
        gate.release()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (acquire_global, "_thread.lock.acquire"),  # the type of the global object
        (acquire_inside_an_expression, "_thread.lock.acquire"),
        (wait_for_event, "threading.Event.wait"),  # a Python function of a library, on the stack
        (sleep, "time.sleep"),
    ],
)
def test_a_call_has_the_name_of_its_function(names_of, function, name):
    assert name in names_of(function, name)


def test_a_method_of_a_local_object_has_no_name(names_of):
    assert names_of(acquire_local, "") <= {"", PYTHON_CODE}


def test_a_line_that_calls_nothing_executes_python_code(names_of):
    is_over = []

    def count():
        number = 0
        while not is_over:
            number += 1

    names = names_of(count, PYTHON_CODE)
    is_over.append(True)
    assert PYTHON_CODE in names
