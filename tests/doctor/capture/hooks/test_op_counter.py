"""Operations are counted all of them, though only some are looked at."""

import pytest

from forebay.doctor.capture.hooks import op_counter
from forebay.doctor.capture.hooks.op_counter import Counting
from forebay.doctor.capture.ledger import Ledger

US = 1_000


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(op_counter, "LOOK_NS", (3 * US, 3 * US))  # time is made up here, and looking takes none of it
    return Counting(Ledger(), "operations")


def run(counting, operations, *, each=10 * US, start=0):
    """As hooks do: told of each that is looked at, and of the one before it; when it ends."""
    counts, now, looked = op_counter.thread.counts, start, 0
    counts.since = counts.last = counts.looked = start
    for _ in range(operations):
        now += each
        if counts.left > 1:
            counts.left -= 1
        elif counts.left:
            counts.pass_over(now)
        else:
            looked += 1
            op_counter.look(counts, now - each // 2, now)
    return now, looked


def written(counting, name):
    return sum(event.detail[name] for event in op_counter.ledger.events)


def test_the_first_are_all_looked_at(counted):
    _, looked = run(counted, op_counter.EXACTLY)
    counted.write()
    assert (looked, written(counted, "count")) == (op_counter.EXACTLY, op_counter.EXACTLY)


def test_of_many_tiny_ones_some_are_looked_at_and_all_are_counted(counted):
    operations = 20 * op_counter.EXACTLY
    _, looked = run(counted, operations)
    counted.write()
    assert looked < operations / 5
    assert abs(written(counted, "count") - operations) <= 2 * op_counter.LONGEST_STRIDE


def test_their_time_is_that_of_all(counted):
    operations = 20 * op_counter.EXACTLY
    run(counted, operations)
    counted.write()
    assert written(counted, "calling_seconds") == pytest.approx(operations * 5e-6, rel=0.02)
    assert sum(event.seconds for event in counted.ledger.events) == pytest.approx(operations * 5e-6, rel=0.02)


def test_those_that_take_long_are_all_looked_at(counted):
    _, looked = run(counted, 3 * op_counter.EXACTLY, each=400 * US)
    assert looked == 3 * op_counter.EXACTLY


def test_while_steps_are_timed_a_span_of_operations_is_one_event(counted):
    now, _ = run(counted, op_counter.EXACTLY)
    counted.write()
    before = counted.ledger.written
    counted.ledger.timed = ("ops", "operations", 7)
    _, looked = run(counted, 10 * op_counter.EXACTLY, start=now)
    assert looked == 10 * op_counter.EXACTLY // counted.thread.counts.per_span
    assert {event.line for event in counted.ledger.events[before:]} == {7}


def test_nobody_is_asked_again_once_it_is_over(counted):
    counted.stop()
    counts = counted.thread.counts
    counted.pause(counts)
    assert counts.left == op_counter.UNSEEN


def test_the_longer_a_look_takes_the_fewer_are_looked_at(counted, monkeypatch):
    _, before = run(counted, 10 * op_counter.EXACTLY)
    monkeypatch.setattr(op_counter, "LOOK_NS", (12 * US, 12 * US))
    _, after = run(counted, 10 * op_counter.EXACTLY)
    assert after < before / 2


@pytest.mark.parametrize(("look_us", "tiny"), [(3, 0), (18, 1)])
def test_what_is_tiny_is_told_by_how_long_a_look_takes(look_us, tiny):
    counts = op_counter.Counts()
    counts.look_ns = look_us * US
    counts.belong(1, counts.last + 55 * US, counts.last + (55 + 90) * US)
    assert counts.lines[1][1] == tiny
