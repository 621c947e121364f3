"""The recorded spans of Python's tracing tools, and the emulation that keeps these tools off."""

import cProfile
import sys
import tracemalloc

import pytest
from tests.doctor.capture.hooks.hook_scripts import watched
from tests.doctor.emulate.emulated import without_setting


def settings(seen):
    return [(event.api, seen.text(event)) for event in seen.of("setting")]


@pytest.fixture
def no_profiler():
    """Stop profilers and memory tracing of this process during a test."""
    profile, frames = sys.getprofile(), tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0
    sys.setprofile(None)
    tracemalloc.stop()
    yield
    sys.setprofile(profile)
    if frames:
        tracemalloc.start(frames)


def test_traced_allocations_are_recorded_with_the_line_that_starts_them(no_profiler):
    def run():
        tracemalloc.start()
        is_tracing = tracemalloc.is_tracing()
        tracemalloc.stop()
        return is_tracing

    seen = watched(run)
    assert seen.result
    assert settings(seen) == [("tracemalloc", "tracemalloc.start()")]


def test_a_profiled_block_is_recorded_with_its_line(no_profiler):
    def run():
        with cProfile.Profile() as profile:
            sum(range(10))
        return profile

    seen = watched(run)
    assert settings(seen) == [("cProfile", "with cProfile.Profile() as profile:")]
    assert seen.result.getstats()


def test_allocations_traced_before_the_session_have_no_line(no_profiler):
    tracemalloc.start()
    seen = watched(tracemalloc.stop)
    assert [(event.api, event.line) for event in seen.of("setting")] == [("tracemalloc", -1)]


def test_the_tools_are_restored_after_the_session():
    before = tracemalloc.start, cProfile.Profile.enable
    watched(lambda: None)
    assert (tracemalloc.start, cProfile.Profile.enable) == before


def test_an_emulation_keeps_a_tool_off(no_profiler):
    def trace():
        tracemalloc.start()
        is_tracing = tracemalloc.is_tracing()
        tracemalloc.stop()
        return is_tracing

    def profile():
        with cProfile.Profile():
            return sys.getprofile() is not None

    assert without_setting("tracemalloc", trace) == (False, 1)
    assert without_setting("cProfile", profile) == (False, 1)
