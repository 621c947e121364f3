"""What the ledger takes from whom: one hook a thread, nobody while it rests, and few while steps are timed."""

from time import perf_counter_ns

from forebay.doctor.capture.ledger import AT_ONCE, NEVER, Ledger
from forebay.doctor.model.events import Kind

SITE = ("run", "jax.jit", 3)


def entered(ledger, calls):
    """Which of so many calls a hook could enter, one after the other."""
    found = []
    for number in range(calls):
        if ledger.enter():
            found.append(number)
            ledger.leave()
    return found


def test_nobody_enters_while_it_rests():
    ledger = Ledger()
    ledger.resting_until = perf_counter_ns() + 60_000_000_000
    assert (entered(ledger, 2), ledger.is_open()) == ([], False)


def test_everybody_does_when_the_rest_is_over():
    ledger = Ledger()
    ledger.resting_until = 1
    assert entered(ledger, 2) == [0, 1]
    assert ledger.resting_until == 0


def test_while_steps_are_timed_all_calls_of_some_steps_are_passed_over():
    ledger = Ledger()
    ledger.timed = SITE
    assert entered(ledger, 3) == [0, 1, 2]  # of one step
    assert ledger.pass_steps(4) == 4
    assert entered(ledger, 12) == [9, 10, 11]


def test_what_marks_a_step_without_entering_is_never_passed_over():
    ledger = Ledger()
    ledger.timed = SITE
    assert ledger.pass_steps(16) == 1


def test_an_open_call_is_passed_over_too():
    ledger = Ledger()
    ledger.timed = SITE
    entered(ledger, 1)
    ledger.pass_steps(3)
    assert [ledger.is_open() for _ in range(3)] == [False, False, True]


def test_it_is_told_of_a_site_as_often_as_was_agreed():
    told = []
    ledger = Ledger(told=lambda site, count, end: told.append(count) or ((5, 1 << 62) if count == 1 else NEVER))
    for _ in range(10):
        ledger.write(Kind.RUN, "jax.jit", 3, 0, 1)
    assert (told, ledger.count(SITE)) == ([1, 5], 10)


def test_all_agreements_can_be_forgotten():
    told = []
    ledger = Ledger(told=lambda site, count, end: told.append(count) or NEVER)
    ledger.write(Kind.RUN, "jax.jit", 3, 0, 1)
    ledger.tell_of_all()
    ledger.write(Kind.RUN, "jax.jit", 3, 0, 1)
    assert told == [1, 2]
    assert AT_ONCE < NEVER
