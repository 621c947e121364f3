"""Waits for queued computation are separated from the uploads in which they happen."""

from dataclasses import replace
from itertools import count

import pytest
from tests.doctor.captures import JAX, TORCH, download, jax_loop, loop, run, upload

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.queue_waits import QUEUE_WAIT, separate_queue_waits
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import EventKind

MS = 1_000_000
GPU = {"jax": {"gpus": 1}}


def with_full_queue(capture, *, free=10, ms=30):
    """Let all uploads except the first `free` ones wait until the computation of a step has ended.

    The events stay in their order, so each wait delays all later events.
    """
    numbers, delay, events = count(), 0, []
    for event in capture.events:
        start = event.start + delay
        if event.kind == EventKind.UPLOAD and next(numbers) >= free:
            delay += ms * MS
        events.append(event._replace(start=start, end=event.end + delay))
    return replace(capture, events=tuple(events))


def running_ahead(**options):
    return with_full_queue(jax_loop(upload("jnp.array", 1, line=5), run(ms=1), ms=3, **options))


def seconds_of(capture, *kinds):
    view = CaptureView(capture)
    return cost_of(view, [event for site in view.sites_of(*kinds) for event in site.events])


def test_a_wait_for_queued_computation_is_no_cost_of_the_upload():
    capture = running_ahead()
    assert seconds_of(capture, EventKind.UPLOAD) == pytest.approx(1e-3)
    assert seconds_of(capture, EventKind.SYNC) == pytest.approx(30e-3)


def test_the_waits_take_the_rest_of_the_upload():
    capture = running_ahead()
    separated = separate_queue_waits(capture)
    waits = [event for event in separated.events if event.api == QUEUE_WAIT]
    assert len(waits) == 40
    assert sum(event.seconds for event in separated.events) == pytest.approx(
        sum(each.seconds for each in capture.events)
    )
    assert {event.line for event in waits} == {5}


def test_no_cure_of_the_conversion_is_offered_for_the_wait():
    diagnosis = diagnose(running_ahead(facts={"other_cores": 1.0}))
    assert [finding.rule for finding in diagnosis.findings if finding.rule in ("conversion_in_loop", "sync")] == []


def test_an_upload_that_always_takes_long_is_not_changed():
    capture = jax_loop(upload("jnp.array", 30, line=5), run(ms=1))
    assert separate_queue_waits(capture) is capture


def test_after_a_read_back_nothing_is_queued():
    capture = with_full_queue(jax_loop(upload("jnp.array", 1, line=5), run(ms=1), download("float(array)", 1)))
    assert separate_queue_waits(capture) is capture


def test_a_few_long_uploads_are_not_changed_because_other_programs_may_delay_them():
    capture = with_full_queue(jax_loop(upload("jnp.array", 1, line=5), run(ms=1)), free=49, ms=5)
    assert separate_queue_waits(capture) is capture


@pytest.mark.parametrize("frameworks", [TORCH, GPU, JAX | GPU])
def test_only_computation_of_jax_on_the_cpu_counts(frameworks):
    capture = with_full_queue(loop(upload("jnp.array", 1), run(ms=1), frameworks=frameworks))
    assert separate_queue_waits(capture) is capture
