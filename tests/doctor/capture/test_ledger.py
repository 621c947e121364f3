"""The ledger decides which hooks may begin, and reports call sites to a callback.

The callback returns the number of events after which the ledger reports the call site again.
"""

from time import perf_counter_ns

from forebay.doctor.capture.ledger import AT_NEXT_EVENT, NEVER, Ledger
from forebay.doctor.model.events import EventKind

SITE = ("run", "jax.jit", 3)


def begin_calls(ledger, calls):
    """Begin and end a hook for each call; return the numbers of the calls whose hook could begin."""
    found = []
    for number in range(calls):
        if ledger.begin():
            found.append(number)
            ledger.end()
    return found


def test_no_hook_begins_during_a_pause():
    ledger = Ledger()
    ledger.paused_until = perf_counter_ns() + 60_000_000_000
    assert (begin_calls(ledger, 2), ledger.can_begin()) == ([], False)


def test_hooks_begin_again_after_the_pause():
    ledger = Ledger()
    ledger.paused_until = 1
    assert begin_calls(ledger, 2) == [0, 1]
    assert ledger.paused_until == 0


def test_all_calls_of_skipped_steps_are_skipped():
    ledger = Ledger()
    ledger.timed_site = SITE
    assert begin_calls(ledger, 3) == [0, 1, 2]  # of one step
    assert ledger.skip_steps(4) == 4
    assert begin_calls(ledger, 12) == [9, 10, 11]


def test_steps_without_a_hook_call_cannot_be_skipped():
    ledger = Ledger()
    ledger.timed_site = SITE
    assert ledger.skip_steps(16) == 1


def test_calls_of_can_begin_count_as_skipped_calls():
    ledger = Ledger()
    ledger.timed_site = SITE
    begin_calls(ledger, 1)
    ledger.skip_steps(3)
    assert [ledger.can_begin() for _ in range(3)] == [False, False, True]


def test_a_site_is_reported_at_the_counts_that_the_callback_returns():
    reports = []
    ledger = Ledger(on_site=lambda site, count, end: reports.append(count) or ((5, 1 << 62) if count == 1 else NEVER))
    for _ in range(10):
        ledger.write((EventKind.RUN, "jax.jit", 3), 0, 1)
    assert (reports, ledger.count_of(SITE)) == ([1, 5], 10)


def test_all_sites_can_be_reported_again():
    reports = []
    ledger = Ledger(on_site=lambda site, count, end: reports.append(count) or NEVER)
    ledger.write((EventKind.RUN, "jax.jit", 3), 0, 1)
    ledger.report_all_sites()
    ledger.write((EventKind.RUN, "jax.jit", 3), 0, 1)
    assert reports == [1, 2]
    assert AT_NEXT_EVENT < NEVER
