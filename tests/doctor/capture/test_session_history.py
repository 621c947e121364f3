"""A session records the history of all steps after the profiled steps, unless the steps are short."""

import time

import pytest

from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import EventKind


@pytest.fixture
def session():
    found = Session(StepDetector(warm_up=1, steps=5, untraced_steps=20, short_seconds=0.0))
    found.start()
    yield found
    found.stop()


def run_steps(session, steps, seconds, pause_every=0):
    site = (EventKind.STEP, "optimizer.step", session.ledger.lines.current_line(0))
    for step in range(steps):
        time.sleep(seconds)
        if pause_every and step % pause_every == pause_every - 1:
            time.sleep(20 * seconds)
        now = time.perf_counter_ns()
        if session.ledger.is_on:
            session.ledger.write(site, now, now)


def test_all_steps_after_the_profiled_ones_are_in_the_history(session):
    run_steps(session, 200, 0.004, pause_every=25)
    history = session.capture("train.py").history
    assert session.is_done()
    assert history.steps == 200 - 6 - 1  # 6 profiled; the step in which the doctor ended the timing is discarded
    assert {step.position for step in history.long_steps} >= set(range(18, history.steps, 25))


def test_the_steps_of_the_history_are_no_events(session):
    run_steps(session, 200, 0.004)
    assert session.ledger.event_count == 6 + 21  # profiled and timed steps; 20 steps have 21 ends


def test_short_steps_end_the_history_with_the_timed_steps(session):
    run_steps(session, 500, 0.0002)
    history = session.capture("train.py").history
    assert not session.ledger.is_on
    assert history.steps <= 20


def test_the_history_excludes_the_time_of_the_doctors_callback():
    session = Session(StepDetector(warm_up=1, steps=5, untraced_steps=20), on_enough=lambda: time.sleep(0.5))
    session.start()
    started = time.perf_counter()
    run_steps(session, 100, 0.004)
    seconds = time.perf_counter() - started
    session.stop()
    assert session.capture("train.py").history.seconds <= seconds - 0.5


def test_a_session_without_a_history_ends_with_the_timed_steps():
    session = Session(StepDetector(warm_up=1, steps=5, untraced_steps=20), records_history=False)
    session.start()
    run_steps(session, 100, 0.004)
    session.stop()
    assert session.capture("train.py").history is None
    assert not session.ledger.is_on


def test_no_hooks_are_installed_after_the_profiled_steps(session):
    run_steps(session, 40, 0.004)
    session._install("torch")
    assert session._patches._replaced == []
