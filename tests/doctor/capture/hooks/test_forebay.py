"""A loop that uses a Forebay feed: the hooks record the waits for its batches and its map."""

import time

import numpy as np
import pytest
from tests.doctor.captures import batch, loop, prepare
from tests.doctor.rules.test_rules import findings

import forebay as fb
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.model.events import FEED_API, EventKind

UNLIMITED = {"steps": 10**9, "seconds": 1e9, "wait_seconds": 1e9}


def slow(rows):
    time.sleep(2e-3)
    return rows * 2


@pytest.fixture
def seen():
    session = Session(StepDetector(**UNLIMITED))
    session.start()
    yield session
    session.stop()


def events(session, kind):
    return [event for event in session.ledger.events if event.kind == kind]


def test_every_batch_is_an_input_wait_at_the_line_of_the_loop(seen):
    with fb.from_arrays(np.zeros((40, 5), np.float32)).batch(4).feed("numpy", device="cpu") as feed:
        for _ in feed:
            pass
    waits = events(seen, EventKind.INPUT)
    assert len(waits) == 10
    assert {event.api for event in waits} == {FEED_API}
    assert waits[0].nbytes == 4 * 5 * 4
    assert waits[0].detail["loader"] == "forebay"
    assert waits[0].detail["batch_rows"] == 4
    lines = seen.ledger.lines.read()
    assert {lines[event.line].text for event in waits} == {"for _ in feed:"}


def test_the_map_is_recorded_with_its_function(seen):
    with fb.from_arrays(np.zeros(40, np.float32)).batch(4).map(slow).feed("numpy", device="cpu") as feed:
        assert len(list(feed)) == 10
    maps = events(seen, EventKind.PREPARE)
    assert len(maps) >= 10
    assert seen.ledger.lines.read()[maps[0].line].function == "slow"


def test_nothing_is_recorded_after_profiling():
    session = Session(StepDetector(**UNLIMITED))
    session.start()
    session.stop()
    with fb.from_arrays(np.zeros(8, np.float32)).batch(4).map(slow).feed("numpy", device="cpu") as feed:
        assert len(list(feed)) == 2
    assert session.ledger.events == []


def test_the_cure_of_a_slow_map_in_threads_is_worker_processes():
    wait = batch(FEED_API, 8, loader="forebay", prefetch=4, batch_rows=64).containing(prepare("map", 7.9))
    (finding,) = findings(loop(wait), "input_bound")
    assert "waits for a forebay feed" in finding.title
    assert 'pipeline.batch(64).map(prepare, where="process")' in finding.cures[0].code


def test_the_cure_of_a_slow_map_in_processes_is_ray():
    (finding,) = findings(loop(batch(FEED_API, 8, loader="forebay", workers=4, prefetch=4)), "input_bound")
    assert 'where="ray"' in finding.cures[0].code


def test_the_cure_of_a_slow_feed_without_a_map_is_explain():
    (finding,) = findings(loop(batch(FEED_API, 8, loader="forebay", prefetch=4)), "input_bound")
    assert finding.cures[0].code == "print(feed.explain())"
