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


def test_a_stack_has_lines_of_the_script_and_functions_of_libraries(stacks):
    indices = []

    def hook(_):
        indices.append(stacks.find(sys._getframe()))

    json.loads('{"a": 1}', object_hook=hook)
    *_, test, loads, decode, raw_decode, last = names_in_stack(stacks, indices[0])
    assert test == "test_a_stack_has_lines_of_the_script_and_functions_of_libraries"
    assert (loads, decode) == ("json.loads", "json.decoder.JSONDecoder.decode")
    assert raw_decode == "json.decoder.JSONDecoder.raw_decode"
    assert last.endswith("hook")


def test_a_stack_begins_with_user_code(stacks):
    stacks.find(sys._getframe())
    assert all(frame.line >= 0 for frame in stacks.frames if frame.caller < 0)


def test_equal_stacks_have_equal_indices_and_other_stacks_another_index(stacks):
    same = [stacks.find(sys._getframe()) for _ in range(2)]
    other = stacks.find(sys._getframe())
    assert same[0] == same[1] != other


def test_a_caller_stands_before_the_frames_that_it_calls(stacks):
    stacks.find(sys._getframe())
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


def find_at_depth(stacks, depth):
    return find_at_depth(stacks, depth - 1) if depth else stacks.find(sys._getframe())


def test_the_number_of_frames_is_limited(stacks, monkeypatch):
    monkeypatch.setattr(call_stacks, "MAX_FRAMES", 3)
    assert find_at_depth(stacks, 10) == 2
    assert len(stacks.frames) == 3


def test_the_depth_of_a_stack_is_limited(stacks):
    find_at_depth(stacks, 100)
    assert len(stacks.frames) == call_stacks.MAX_DEPTH
