"""Stacks of a running thread: lines of the script, functions of libraries, and the C function at the end."""

import json
import sys
import threading
import time

import pytest

from forebay.doctor.capture import call_stacks
from forebay.doctor.capture.call_stacks import CallStacks
from forebay.doctor.capture.source_lines import SourceLines


@pytest.fixture
def stacks():
    return CallStacks(SourceLines())


def names_in_stack(stacks, index):
    """Return the names of the functions of a stack, outermost first."""
    found = []
    while index >= 0:
        frame = stacks.frames[index]
        found.append(frame.function or stacks._lines.locations[frame.line][2])
        index = frame.caller
    return found[::-1]


def find_in_thread(stacks, function):
    """Call `function(wait)` in a thread, and return the index of its stack while `wait` waits in a C function.

    The stack of the calling thread is not suitable: its innermost frame calls a Python function, `stacks.find`.
    """
    has_begun, gate = threading.Lock(), threading.Lock()
    has_begun.acquire()
    gate.acquire()

    def wait(*_):
        has_begun.release(), gate.acquire()  # in one line, so that each sample has the same stack

    thread = threading.Thread(target=function, args=(wait,))
    thread.start()
    assert has_begun.acquire(timeout=60)
    index = stacks.find(sys._current_frames()[thread.ident])
    gate.release()
    thread.join()
    return index


def call_at_depth(function, depth):
    return call_at_depth(function, depth - 1) if depth else function()


def test_a_stack_has_lines_of_the_script_and_functions_of_libraries(stacks):
    def load(wait):
        json.loads('{"a": 1}', object_hook=wait)

    first, *library, last = names_in_stack(stacks, find_in_thread(stacks, load))
    assert first.endswith("load")
    assert library == ["json.loads", "json.decoder.JSONDecoder.decode", "json.decoder.JSONDecoder.raw_decode"]
    assert last.endswith("wait")


def test_a_stack_begins_with_user_code(stacks):
    find_in_thread(stacks, lambda wait: wait())
    assert all(frame.line >= 0 for frame in stacks.frames if frame.caller < 0)


def test_equal_stacks_have_equal_indices_and_other_stacks_another_index(stacks):
    same = [find_in_thread(stacks, lambda wait: wait()) for _ in range(2)]
    other = find_in_thread(stacks, lambda wait: wait())
    assert same[0] == same[1] != other


def test_a_caller_has_a_lower_index_than_the_frames_that_it_calls(stacks):
    find_in_thread(stacks, lambda wait: wait())
    assert all(frame.caller < index for index, frame in enumerate(stacks.frames))


def test_the_c_function_at_the_end_of_a_stack_is_named(stacks):
    thread = threading.Thread(target=lambda: time.sleep(1.0))
    thread.start()
    names, end = set(), time.monotonic() + 60
    while thread.is_alive() and "time.sleep" not in names and time.monotonic() < end:
        names |= set(names_in_stack(stacks, stacks.find(sys._current_frames()[thread.ident])))
    thread.join()
    assert "time.sleep" in names


def test_a_stack_without_user_code_has_no_index(stacks, monkeypatch):
    monkeypatch.setattr(stacks._lines, "line_of_frame", lambda frame: -1)
    assert stacks.find(sys._getframe()) == -1


def test_the_number_of_frames_is_limited(stacks, monkeypatch):
    monkeypatch.setattr(call_stacks, "MAX_FRAMES", 3)
    assert find_in_thread(stacks, lambda wait: call_at_depth(wait, 10)) == 2
    assert len(stacks.frames) == 3


def test_the_depth_of_a_stack_is_limited(stacks):
    find_in_thread(stacks, lambda wait: call_at_depth(wait, 100))
    assert len(stacks.frames) == call_stacks.MAX_DEPTH


@pytest.mark.parametrize(("depth", "functions"), [(10, {"", "time.sleep"}), (100, {""})])
def test_a_c_function_is_named_only_if_its_caller_is_within_the_depth_limit(stacks, monkeypatch, depth, functions):
    monkeypatch.setattr(stacks._functions, "name_of_instruction", lambda frame: "time.sleep")
    find_in_thread(stacks, lambda wait: call_at_depth(wait, depth))
    assert {frame.function for frame in stacks.frames} == functions
