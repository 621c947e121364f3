"""The monitor samples the loop during unprofiled steps. It leaves no trace in the script."""

import os
import random
import sys
import threading
import time

import pytest

from forebay.doctor.capture import step_monitor
from forebay.doctor.capture.source_lines import SourceLines
from forebay.doctor.capture.step_monitor import StepMonitor, steps_per_measurement
from forebay.doctor.model.events import EventKind


@pytest.fixture
def monitor(monkeypatch):
    monkeypatch.setattr(step_monitor, "SECONDS", 0.002)
    failures = []
    found = StepMonitor(SourceLines(), failures.append)
    yield found
    found.stop()
    assert failures == []


def save():
    time.sleep(0.1)


def compute():
    time.sleep(0.004)


def run_loop(monitor, steps=120, every=20):
    monitor.start()
    monitor.discard_step()
    for step in range(steps):
        compute()
        if step % every == every - 1:
            save()
        monitor.add_end(time.perf_counter_ns())
    monitor.stop()
    return monitor.history()


def names_in(monitor, samples):
    """Return the functions of user code that the sampled stacks contain."""
    locations, frames = monitor._stacks._lines.locations, monitor._stacks.frames
    found = set()
    for index, _ in samples:
        while index >= 0:
            found |= {locations[frames[index].line][2]} if frames[index].line >= 0 else set()
            index = frames[index].caller
    return found


def test_steps_and_pauses_of_a_loop_are_recorded(monitor):
    history = run_loop(monitor)
    assert history.steps == 120
    assert {step.position for step in history.long_steps} >= {19, 39, 59, 79, 99, 119}
    assert "save" in names_in(monitor, history.long_samples)
    assert "save" not in names_in(monitor, [sample for block in history.blocks for sample in block.samples])


def test_a_long_step_is_sampled_even_if_the_usual_samples_are_rare(monkeypatch):
    monkeypatch.setattr(step_monitor, "SECONDS", 0.04)
    monitor = StepMonitor(SourceLines(), pytest.fail)
    assert "save" in names_in(monitor, run_loop(monitor, 200, 50).long_samples)


def test_a_step_end_before_the_latest_step_end_is_ignored():
    monitor = StepMonitor(SourceLines(), pytest.fail)
    for end in (*range(1, 12), 3, *range(12, 20)):
        monitor.add_end(end * 1_000_000)
    history = monitor.history()
    assert history.steps == 18
    assert history.seconds == pytest.approx(18e-3)


def test_the_waits_between_samples_grow_after_the_loop_has_ended(monitor):
    run_loop(monitor)
    monitor.history()  # the recorder takes all ends
    end = monitor._recorder.last_end
    waits = [monitor._sample(end + seconds * 10**9) for seconds in (1, 10, 1_000)]
    assert waits == pytest.approx([0.05, 0.5, step_monitor.MAX_SECONDS])


def test_a_failing_sample_ends_the_sampling_and_not_the_script(monkeypatch):
    failures = []
    monitor = StepMonitor(SourceLines(), failures.append)
    monkeypatch.setattr(monitor._stacks, "find", lambda frame: 1 / 0)
    assert run_loop(monitor, 60).steps == 60
    assert [type(error) for error in failures] == [ZeroDivisionError]


def test_the_script_sees_neither_the_thread_nor_its_random_numbers(monitor):
    before = threading.active_count(), random.getstate(), sys.getswitchinterval()
    monitor.start()
    time.sleep(0.05)
    assert (threading.active_count(), random.getstate(), sys.getswitchinterval()) == before


def test_the_history_does_not_change_after_stop(monitor):
    history = run_loop(monitor)
    monitor.stop()
    time.sleep(0.05)
    assert monitor.history() == history


def test_a_forked_process_can_read_the_history(monitor):
    monitor.start()
    child = os.fork()
    if child == 0:
        monitor.forget_thread()
        monitor.stop()
        os._exit(0 if monitor.history() is None else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_monitor_that_never_started_has_no_history(monitor):
    monitor.discard_step()
    assert monitor.history() is None


@pytest.mark.parametrize(
    ("kind", "seconds", "calls", "steps"),
    [
        (EventKind.STEP, 0.016, 0, 1),
        (EventKind.STEP, 20e-6, 0, 0),  # the hook would slow down such short steps, and cannot skip them
        (EventKind.RUN, 0.1, 1, 1),
        (EventKind.RUN, 0.004, 1, 5),
        (EventKind.RUN, 100e-6, 1, 0),
        (EventKind.INPUT, 0.001, 1, 7),
        (EventKind.INPUT, 0.001, 50, 0),
        (EventKind.OPS, 1.0, 1, 0),
        (EventKind.UPLOAD, 1.0, 1, 0),
    ],
)
def test_short_steps_are_measured_together_or_not_at_all(kind, seconds, calls, steps):
    assert steps_per_measurement(kind, seconds, calls) == steps
