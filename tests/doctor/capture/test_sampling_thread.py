"""Samplers in a process that cannot start another thread."""

import _thread

import pytest

from forebay.doctor import watch
from forebay.doctor.capture.sampling_thread import SamplingThread


@pytest.fixture(autouse=True)
def no_more_threads(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)


def test_a_sampling_thread_that_cannot_start_reports_a_failure_and_raises_no_error():
    failures = []
    thread = SamplingThread(lambda: 1.0, failures.append)
    thread.start(1.0)
    thread.stop()
    assert [str(failure) for failure in failures] == ["can't start new thread"]


def test_a_watch_without_its_sampling_thread_ends_and_has_a_note():
    with watch() as watching:
        pass
    assert "the host is recorded only in part: RuntimeError" in "".join(watching.capture.notes)
    with watch():
        pass
