"""The operation counter counts all operations, although it samples only some of them."""

import pytest

from forebay.doctor.capture.hooks import op_counter
from forebay.doctor.capture.hooks.op_counter import OpCounter
from forebay.doctor.capture.ledger import Ledger

US = 1_000  # nanoseconds


@pytest.fixture
def counter(monkeypatch):
    # The tests pass invented times. Without this patch, the counter would measure the cost of a sample on this machine.
    monkeypatch.setattr(op_counter, "SAMPLE_COST_BOUNDS_NS", (3 * US, 3 * US))
    return OpCounter(Ledger(), "operations")


def run(counter, operations, *, each=10 * US, start=0):
    """Run operations as the hooks do; return the end of the last operation and the number of samples.

    An operation begins every `each` nanoseconds. The call takes the first half, and the operation the second.
    """
    ops, now, samples = counter.thread.ops, start, 0
    ops.span_start = ops.last_end = ops.last_sample_end = start
    for _ in range(operations):
        now += each
        if ops.ops_until_sample > 1:
            ops.ops_until_sample -= 1
        elif ops.ops_until_sample:
            ops.skip_op(now)
        else:
            samples += 1
            counter.sample(ops, now - each // 2, now)
    return now, samples


def run_at(counter, start, end):
    """Run one operation as a hook does."""
    counter.sample(counter.thread.ops, start, end)


def total(counter, name):
    return sum(event.detail[name] for event in counter.ledger.events)


def test_the_first_operations_are_all_sampled(counter):
    _, samples = run(counter, op_counter.EXACT_OPS)
    counter.write_span()
    assert (samples, total(counter, "count")) == (op_counter.EXACT_OPS, op_counter.EXACT_OPS)


def test_counting_ends_when_the_limit_of_spans_is_reached(counter, monkeypatch):
    monkeypatch.setattr(op_counter, "MAX_SPANS", 2)
    for _ in range(2):
        run(counter, 10)
        counter.write_span()
    _, samples = run(counter, op_counter.EXACT_OPS)
    counter.stop()
    assert (samples, total(counter, "count")) == (1, 20)
    assert len(counter.ledger.notes) == 1


def test_of_many_tiny_operations_some_are_sampled_and_all_are_counted(counter):
    operations = 20 * op_counter.EXACT_OPS
    _, samples = run(counter, operations)
    counter.write_span()
    assert samples < operations / 5
    assert abs(total(counter, "count") - operations) <= 2 * op_counter.MAX_STRIDE


def test_the_recorded_time_includes_operations_that_are_not_sampled(counter):
    operations = 20 * op_counter.EXACT_OPS
    seconds = operations * 5e-6  # half of the 10 us from one operation to the next
    run(counter, operations)
    counter.write_span()
    assert total(counter, "calling_seconds") == pytest.approx(seconds, rel=0.02)
    assert sum(event.seconds for event in counter.ledger.events) == pytest.approx(seconds, rel=0.02)


def test_calling_time_starts_after_the_last_call_that_another_hook_recorded(counter):
    ops = counter.thread.ops
    ops.last_end = 100 * US
    counter.ledger.write(("run", "jit", 0), 110 * US, 400 * US)
    counter.ledger.write(("upload", "jit", 0), 110 * US, 120 * US)
    run_at(counter, 430 * US, 440 * US)
    counter.write_span()
    assert counter.ledger.events[-1].detail["calling_seconds"] == pytest.approx(30e-6)


def test_long_operations_are_all_sampled(counter):
    _, samples = run(counter, 3 * op_counter.EXACT_OPS, each=400 * US)
    assert samples == 3 * op_counter.EXACT_OPS


def test_while_steps_are_timed_a_span_of_operations_is_one_event(counter):
    now, _ = run(counter, op_counter.EXACT_OPS)
    counter.write_span()
    before = counter.ledger.event_count
    counter.ledger.timed_site = ("ops", "operations", 7)
    _, samples = run(counter, 10 * op_counter.EXACT_OPS, start=now)
    assert samples == 10 * op_counter.EXACT_OPS // counter.thread.ops.ops_per_span
    assert {event.line for event in counter.ledger.events[before:]} == {7}


def test_no_operation_is_sampled_after_the_counter_stops(counter):
    counter.stop()
    ops = counter.thread.ops
    counter.postpone_sample(ops)
    assert ops.ops_until_sample == op_counter.NEVER_SAMPLE


def test_fewer_operations_are_sampled_if_a_sample_costs_more(counter, monkeypatch):
    _, before = run(counter, 10 * op_counter.EXACT_OPS)
    monkeypatch.setattr(op_counter, "SAMPLE_COST_BOUNDS_NS", (12 * US, 12 * US))
    _, after = run(counter, 10 * op_counter.EXACT_OPS)
    assert after < before / 2


@pytest.mark.parametrize(("sample_cost_us", "tiny"), [(3, 0), (18, 1)])
def test_a_longer_operation_counts_as_tiny_if_a_sample_costs_more(sample_cost_us, tiny):
    ops = op_counter.ThreadOps()
    ops.sample_cost_ns = sample_cost_us * US
    ops.add_sample(1, ops.last_end + 55 * US, ops.last_end + (55 + 90) * US)
    _operations, tiny_operations, *_ = ops.by_line[1]
    assert tiny_operations == tiny
