"""Debuggers, coverage tools and profilers that are active during the profiled steps.

`hooks/torch_settings_cases.py` profiles a loop of PyTorch that is traced.
"""

import cProfile
import sys

import pytest

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.thread_readings import active_tools, record_tools
from forebay.doctor.model.events import EventKind


def ignore(frame, event, argument):
    return None


@pytest.fixture
def no_tools():
    """Stop debuggers, coverage tools and profilers of this process during a test."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    yield
    sys.settrace(trace)
    sys.setprofile(profile)


def recorded(switch_on):
    """Return the settings that are recorded after `switch_on`, with their lines and starts."""
    ledger = Ledger()
    switch_on()
    record_tools(ledger, 7)
    sys.settrace(None)
    sys.setprofile(None)
    return [(event.api, event.line, event.start) for event in ledger.events if event.kind == EventKind.SETTING]


def test_an_active_tool_is_recorded(no_tools):
    assert recorded(lambda: sys.settrace(ignore)) == [("sys.settrace", -1, 7)]
    assert recorded(lambda: sys.setprofile(ignore)) == [("sys.setprofile", -1, 7)]


def test_without_a_tool_nothing_is_recorded(no_tools):
    assert recorded(lambda: None) == []


def test_cprofile_is_not_recorded_twice(no_tools):
    profile = cProfile.Profile()
    assert recorded(profile.enable) == []
    profile.disable()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has sys.monitoring since 3.12")
def test_a_debugger_that_monitors_is_found(no_tools):
    assert active_tools() == frozenset()
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "debugger")
    try:
        assert {each.value for each in active_tools()} == {"sys.settrace"}
    finally:
        sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)


def test_active_tools_changes_no_tool(no_tools):
    sys.settrace(ignore)
    active_tools()
    assert sys.gettrace() is ignore
