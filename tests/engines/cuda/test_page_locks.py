"""Feeds share page-locks, and the last feed releases them. Page-locks of other code stay."""

import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.engines.cuda import engine
from forebay.engines.cuda.page_locks import PageLocks, PageLockSet, whole_pages
from forebay.errors import DeviceError

PAGE = mmap.PAGESIZE
PAGES = 12
ERRORS = (DeviceError, KeyboardInterrupt)


class Driver:
    """A driver with its rules for page-locks: no overlap, and unlock by start address."""

    def __init__(self):
        self.ranges = {}  # start -> (stop, owner: "ours" or "theirs")
        self.read_only = []
        self.failures = {}  # start -> the error that a lock raises
        self.before_lock = lambda: None

    def page_lock(self, address, nbytes, *, read_only=False, whose="ours"):
        self.before_lock()
        if address in self.failures:
            raise self.failures[address]
        if any(start < address + nbytes and address < stop for start, (stop, _) in self.ranges.items()):
            raise DeviceError("CUDA failed page-locking: already registered (712).")
        self.ranges[address] = (address + nbytes, whose)
        self.read_only += [address] if read_only else []

    def page_unlock(self, address):
        assert self.ranges.pop(address)[1] == "ours"

    def is_page_locked(self, address):
        return any(start <= address < stop for start, (stop, _) in self.ranges.items())

    def covers(self, start, stop):
        return all(self.is_page_locked(page) for page in range(start, stop, PAGE))

    def boundaries_inside(self, start, stop):
        edges = {edge for begin, (end, _) in self.ranges.items() for edge in (begin, end)}
        return {edge for edge in edges if start < edge < stop}


spans = st.tuples(st.integers(0, PAGES - 1), st.integers(0, PAGES - 1)).map(
    lambda pair: (min(pair) * PAGE, (max(pair) + 1) * PAGE)
)


class LocksMachine(RuleBasedStateMachine):
    """Feeds that lock random ranges of the same pages and close in random order."""

    @initialize()
    def start(self):
        self.driver = Driver()
        self.locks = PageLocks(self.driver)
        self.held = {}  # set of page-locks -> the ranges that it requested

    @rule(span=spans)
    def a_feed_begins(self, span):
        lock = PageLockSet(self.locks)
        lock.add(span[0], span[1] - span[0], read_only=False)
        self.held[lock] = [span]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), span=spans)
    def a_feed_locks_more(self, data, span):
        lock = data.draw(st.sampled_from(list(self.held)))
        lock.add(span[0], span[1] - span[0], read_only=False)
        self.held[lock].append(span)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), span=spans, first_failing_page=st.integers(0, PAGES))
    def a_feed_may_be_interrupted_while_it_locks_more(self, data, span, first_failing_page):
        lock, before = data.draw(st.sampled_from(list(self.held))), dict(self.driver.ranges)
        self.driver.failures = {page * PAGE: KeyboardInterrupt() for page in range(first_failing_page, PAGES)}
        try:
            lock.add(span[0], span[1] - span[0], read_only=False)
        except KeyboardInterrupt:
            assert self.driver.ranges == before
        else:
            self.held[lock].append(span)
        self.driver.failures = {}

    @precondition(lambda self: self.held)
    @rule(data=st.data(), times=st.integers(1, 2))
    def a_feed_ends(self, data, times):
        lock = data.draw(st.sampled_from(list(self.held)))
        for _ in range(times):
            lock.close()
        del self.held[lock]

    @invariant()
    def all_requested_pages_are_locked(self):
        assert all(self.driver.covers(*span) for found in self.held.values() for span in found)

    @invariant()
    def boundaries_are_known(self):
        for lock, found in self.held.items():
            assert all(self.driver.boundaries_inside(*span) <= set(lock.boundaries) for span in found)

    @invariant()
    def only_requested_pages_are_locked(self):
        pieces = {piece.start: piece.users for piece in self.locks._ranges}
        held = [piece.start for lock in self.held for piece in lock._ranges]
        assert set(self.driver.ranges) == set(pieces)
        assert pieces == {start: held.count(start) for start in held}


TestLocks = LocksMachine.TestCase
TestLocks.settings = settings(stateful_step_count=30)


def lock_pages(driver, *spans, read_only=False, locks=None):
    """Lock some spans, given in pages."""
    lock = PageLockSet(locks or PageLocks(driver))
    for first, last in spans:
        lock.add(first * PAGE, (last - first) * PAGE, read_only=read_only)
    return lock


def gap_start(known, page):
    """Return the first page of the gap that contains this page."""
    return max((before + 1 for before in known if before < page), default=0)


def in_pages(driver):
    return sorted((start // PAGE, stop // PAGE, whose) for start, (stop, whose) in driver.ranges.items())


def test_shared_pages_are_locked_once():
    driver = Driver()
    locks = PageLocks(driver)
    first, second = lock_pages(driver, (2, 4), locks=locks), lock_pages(driver, (0, 6), locks=locks)
    assert in_pages(driver) == [(0, 2, "ours"), (2, 4, "ours"), (4, 6, "ours")]
    first.close()
    assert in_pages(driver) == [(0, 2, "ours"), (2, 4, "ours"), (4, 6, "ours")]
    second.close()
    assert in_pages(driver) == []


def test_boundaries_are_where_locked_ranges_begin_and_end():
    driver = Driver()
    locks = PageLocks(driver)
    other = lock_pages(driver, (2, 4), locks=locks)
    assert lock_pages(driver, (1, 3), (6, 7), locks=locks).boundaries == [
        1 * PAGE,
        2 * PAGE,
        4 * PAGE,
        6 * PAGE,
        7 * PAGE,
    ]
    assert other.boundaries == [2 * PAGE, 4 * PAGE]


def test_a_set_counts_the_requested_bytes():
    assert lock_pages(Driver(), (0, 2), (1, 3)).nbytes == 4 * PAGE


def test_read_only_memory_gets_a_read_only_lock():
    driver = Driver()
    lock_pages(driver, (3, 5), read_only=True)
    lock_pages(driver, (7, 8))
    assert driver.read_only == [3 * PAGE]


def test_page_locks_of_other_code_are_used_and_not_released():
    driver = Driver()
    driver.page_lock(0, 8 * PAGE, whose="theirs")
    lock = lock_pages(driver, (2, 5))
    assert lock.boundaries == [2 * PAGE, 5 * PAGE]
    lock.close()
    assert in_pages(driver) == [(0, 8, "theirs")]


def test_feeds_share_page_locks_of_other_code():
    driver = Driver()
    driver.page_lock(0, 8 * PAGE, whose="theirs")
    locks = PageLocks(driver)
    first, second = lock_pages(driver, (2, 5), locks=locks), lock_pages(driver, (2, 5), locks=locks)
    first.close()
    second.close()
    assert in_pages(driver) == [(0, 8, "theirs")]


def test_a_partial_lock_of_other_code_is_refused_and_nothing_stays_locked():
    driver = Driver()
    driver.page_lock(0, 2 * PAGE, whose="theirs")
    with pytest.raises(DeviceError, match="already registered"):
        lock_pages(driver, (1, 5))
    assert in_pages(driver) == [(0, 2, "theirs")]


@given(known=st.sets(st.integers(0, PAGES - 1)), fails=st.integers(0, PAGES - 1), error=st.sampled_from(ERRORS))
def test_a_failure_half_way_releases_what_was_locked_before(known, fails, error):
    driver = Driver()
    locks = PageLocks(driver)
    others = [lock_pages(driver, (page, page + 1), locks=locks) for page in known - {fails}]
    before = in_pages(driver)
    driver.failures = {gap_start(known, fails) * PAGE: error("no")}
    with pytest.raises(error):
        lock_pages(driver, (0, PAGES), locks=locks)
    assert in_pages(driver) == before
    for other in others:
        other.close()
    assert in_pages(driver) == []


@given(address=st.integers(0, 10 * PAGE), nbytes=st.integers(1, 10 * PAGE))
def test_whole_pages_are_all_pages_inside_the_memory(address, nbytes):
    start, stop = whole_pages(address, nbytes)
    inside = [page for page in range(0, 30 * PAGE, PAGE) if address <= page and page + PAGE <= address + nbytes]
    assert list(range(start, stop, PAGE)) == inside


def test_memory_without_a_whole_page_has_an_empty_range():
    start, stop = whole_pages(PAGE + 1, 2 * PAGE - 2)
    assert start == stop


def test_a_gap_between_page_locks_of_other_code_is_not_locked():
    driver = Driver()
    driver.page_lock(0, PAGE, whose="theirs")
    driver.page_lock(4 * PAGE, PAGE, whose="theirs")
    with pytest.raises(DeviceError, match="already registered"):
        lock_pages(driver, (0, 5))
    assert in_pages(driver) == [(0, 1, "theirs"), (4, 5, "theirs")]


def test_an_array_stays_locked_until_the_last_feed_of_any_device_closes(monkeypatch):
    monkeypatch.setattr(engine, "_process_locks", {})
    driver, of_another_device = Driver(), Driver()
    first = lock_pages(driver, (0, 3), locks=engine.process_page_locks(driver))
    second = lock_pages(driver, (0, 3), locks=engine.process_page_locks(of_another_device))
    assert in_pages(driver) == [(0, 3, "ours")]
    first.close()
    assert driver.covers(0, 3 * PAGE)
    second.close()
    assert in_pages(driver) == []


def test_page_locks_open_no_further_device(monkeypatch):
    monkeypatch.setattr(engine, "_process_locks", {})
    monkeypatch.setattr(engine, "device_at", lambda index: pytest.fail(f"device {index} was opened"))
    driver = Driver()
    lock_pages(driver, (0, 3), locks=engine.process_page_locks(driver))
    assert in_pages(driver) == [(0, 3, "ours")]


def test_an_unlock_error_leaves_no_other_range_locked():
    driver = Driver()
    lock = lock_pages(driver, (0, 1), (1, 2), (2, 3))
    driver.ranges[PAGE] = (2 * PAGE, "theirs")
    with pytest.raises(AssertionError):
        lock.close()
    assert in_pages(driver) == []


@pytest.mark.timeout(300)  # after a deadlock, the test would wait forever
def test_a_feed_collected_during_a_lock_releases_its_own_locks():
    driver = Driver()
    locks = PageLocks(driver)
    collected = lock_pages(driver, (0, 1), (3, 4), locks=locks)
    driver.before_lock = collected.close
    lock = lock_pages(driver, (0, 6), locks=locks)
    assert driver.covers(0, 6 * PAGE)
    assert in_pages(driver) == [(0, 1, "ours"), (1, 3, "ours"), (3, 4, "ours"), (4, 6, "ours")]
    lock.close()
    assert in_pages(driver) == []
