"""Page-locks: counted once for all who share them, given back in the end, and nobody else's touched."""

import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.engines.cuda import engine
from forebay.engines.cuda.page_locks import Lock, PageLocks, whole_pages
from forebay.errors import DeviceError

PAGE = mmap.PAGESIZE
PAGES = 12
ERRORS = (DeviceError, KeyboardInterrupt)


class Driver:
    """Registers ranges as the driver does: none may overlap another, and they are undone by where they start."""

    def __init__(self):
        self.ranges = {}  # start -> (stop, whose)
        self.read_only = []
        self.failures = {}  # start -> what locking raises there
        self.before_lock = lambda: None

    def lock(self, address, nbytes, *, read_only=False, whose="ours"):
        self.before_lock()
        if address in self.failures:
            raise self.failures[address]
        if any(start < address + nbytes and address < stop for start, (stop, _) in self.ranges.items()):
            raise DeviceError("CUDA failed page-locking: already registered (712).")
        self.ranges[address] = (address + nbytes, whose)
        self.read_only += [address] if read_only else []

    def unlock(self, address):
        assert self.ranges.pop(address)[1] == "ours"

    def is_locked(self, address):
        return any(start <= address < stop for start, (stop, _) in self.ranges.items())

    def covers(self, start, stop):
        return all(self.is_locked(page) for page in range(start, stop, PAGE))

    def seams_inside(self, start, stop):
        edges = {edge for begin, (end, _) in self.ranges.items() for edge in (begin, end)}
        return {edge for edge in edges if start < edge < stop}


spans = st.tuples(st.integers(0, PAGES - 1), st.integers(0, PAGES - 1)).map(
    lambda pair: (min(pair) * PAGE, (max(pair) + 1) * PAGE)
)


class LocksMachine(RuleBasedStateMachine):
    """Feeds that lock whatever they like of the same pages, and end in any order."""

    @initialize()
    def start(self):
        self.driver = Driver()
        self.locks = PageLocks(self.driver)
        self.held = {}  # lock -> what it asked for

    @rule(span=spans)
    def a_feed_begins(self, span):
        lock = Lock(self.locks)
        lock.add(span[0], span[1] - span[0], read_only=False)
        self.held[lock] = [span]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), span=spans)
    def a_feed_locks_more(self, data, span):
        lock = data.draw(st.sampled_from(list(self.held)))
        lock.add(span[0], span[1] - span[0], read_only=False)
        self.held[lock].append(span)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), span=spans, sound=st.integers(0, PAGES))
    def a_feed_may_be_interrupted_while_it_locks_more(self, data, span, sound):
        lock, before = data.draw(st.sampled_from(list(self.held))), dict(self.driver.ranges)
        self.driver.failures = {page * PAGE: KeyboardInterrupt() for page in range(sound, PAGES)}
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
    def all_that_is_held_is_locked(self):
        assert all(self.driver.covers(*span) for found in self.held.values() for span in found)

    @invariant()
    def seams_are_known(self):
        for lock, found in self.held.items():
            assert all(self.driver.seams_inside(*span) <= set(lock.seams) for span in found)

    @invariant()
    def nothing_is_locked_that_nobody_holds(self):
        pieces = {piece.start: piece.users for piece in self.locks._pieces}
        held = [piece.start for lock in self.held for piece in lock._pieces]
        assert set(self.driver.ranges) == set(pieces)
        assert pieces == {start: held.count(start) for start in held}


TestLocks = LocksMachine.TestCase
TestLocks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def held(driver, *spans, read_only=False, locks=None):
    """A lock of some spans, given in pages."""
    lock = Lock(locks or PageLocks(driver))
    for first, last in spans:
        lock.add(first * PAGE, (last - first) * PAGE, read_only=read_only)
    return lock


def gap_start(known, page):
    """The first page of the gap between known pages that this one lies in."""
    return max((before + 1 for before in known if before < page), default=0)


def in_pages(driver):
    return sorted((start // PAGE, stop // PAGE, whose) for start, (stop, whose) in driver.ranges.items())


def test_what_is_shared_is_locked_once_and_only_the_rest_is_locked_besides():
    driver = Driver()
    locks = PageLocks(driver)
    first, second = held(driver, (2, 4), locks=locks), held(driver, (0, 6), locks=locks)
    assert in_pages(driver) == [(0, 2, "ours"), (2, 4, "ours"), (4, 6, "ours")]
    first.close()
    assert in_pages(driver) == [(0, 2, "ours"), (2, 4, "ours"), (4, 6, "ours")]
    second.close()
    assert in_pages(driver) == []


def test_seams_are_where_pieces_begin_and_end():
    driver = Driver()
    locks = PageLocks(driver)
    other = held(driver, (2, 4), locks=locks)
    assert held(driver, (1, 3), (6, 7), locks=locks).seams == [1 * PAGE, 2 * PAGE, 4 * PAGE, 6 * PAGE, 7 * PAGE]
    assert other.seams == [2 * PAGE, 4 * PAGE]


def test_a_lock_counts_the_bytes_it_was_asked_for():
    assert held(Driver(), (0, 2), (1, 3)).nbytes == 4 * PAGE


def test_memory_that_cannot_be_written_to_is_locked_for_reading():
    driver = Driver()
    held(driver, (3, 5), read_only=True)
    held(driver, (7, 8))
    assert driver.read_only == [3 * PAGE]


def test_what_somebody_else_has_locked_is_used_and_left_alone():
    driver = Driver()
    driver.lock(0, 8 * PAGE, whose="theirs")
    lock = held(driver, (2, 5))
    assert lock.seams == [2 * PAGE, 5 * PAGE]
    lock.close()
    assert in_pages(driver) == [(0, 8, "theirs")]


def test_what_somebody_else_has_locked_is_shared_among_feeds_too():
    driver = Driver()
    driver.lock(0, 8 * PAGE, whose="theirs")
    locks = PageLocks(driver)
    first, second = held(driver, (2, 5), locks=locks), held(driver, (2, 5), locks=locks)
    first.close()
    second.close()
    assert in_pages(driver) == [(0, 8, "theirs")]


def test_a_part_that_somebody_else_has_locked_is_refused_and_nothing_stays_locked():
    driver = Driver()
    driver.lock(0, 2 * PAGE, whose="theirs")
    with pytest.raises(DeviceError, match="already registered"):
        held(driver, (1, 5))
    assert in_pages(driver) == [(0, 2, "theirs")]


@given(known=st.sets(st.integers(0, PAGES - 1)), fails=st.integers(0, PAGES - 1), error=st.sampled_from(ERRORS))
@settings(max_examples=200, deadline=None)
def test_a_failure_half_way_gives_back_what_was_taken_before_it(known, fails, error):
    driver = Driver()
    locks = PageLocks(driver)
    others = [held(driver, (page, page + 1), locks=locks) for page in known - {fails}]
    before = in_pages(driver)
    driver.failures = {gap_start(known, fails) * PAGE: error("no")}
    with pytest.raises(error):
        held(driver, (0, PAGES), locks=locks)
    assert in_pages(driver) == before
    for other in others:
        other.close()
    assert in_pages(driver) == []


@given(address=st.integers(0, 10 * PAGE), nbytes=st.integers(1, 10 * PAGE))
@settings(max_examples=300)
def test_whole_pages_are_all_those_that_lie_inside(address, nbytes):
    start, stop = whole_pages(address, nbytes)
    inside = [page for page in range(0, 30 * PAGE, PAGE) if address <= page and page + PAGE <= address + nbytes]
    assert list(range(start, stop, PAGE)) == inside


def test_memory_without_a_whole_page_has_none():
    start, stop = whole_pages(PAGE + 1, 2 * PAGE - 2)
    assert start == stop


def test_a_gap_between_what_somebody_else_has_locked_is_not_taken_for_locked():
    driver = Driver()
    driver.lock(0, PAGE, whose="theirs")
    driver.lock(4 * PAGE, PAGE, whose="theirs")
    with pytest.raises(DeviceError, match="already registered"):
        held(driver, (0, 5))
    assert in_pages(driver) == [(0, 1, "theirs"), (4, 5, "theirs")]


def test_feeds_of_one_array_keep_it_locked_until_all_have_ended_whatever_their_devices(monkeypatch):
    monkeypatch.setattr(engine, "_of_process", {})
    driver, of_another_device = Driver(), Driver()
    first = held(driver, (0, 3), locks=engine.page_locks(driver))
    second = held(driver, (0, 3), locks=engine.page_locks(of_another_device))
    assert in_pages(driver) == [(0, 3, "ours")]
    first.close()
    assert driver.covers(0, 3 * PAGE)
    second.close()
    assert in_pages(driver) == []


def test_pages_are_locked_by_a_device_that_is_fed_and_no_other_is_opened(monkeypatch):
    monkeypatch.setattr(engine, "_of_process", {})
    monkeypatch.setattr(engine, "device_at", lambda index: pytest.fail(f"device {index} was opened"))
    driver = Driver()
    held(driver, (0, 3), locks=engine.page_locks(driver))
    assert in_pages(driver) == [(0, 3, "ours")]


def test_a_piece_that_cannot_be_unlocked_leaves_no_other_locked():
    driver = Driver()
    lock = held(driver, (0, 1), (1, 2), (2, 3))
    driver.ranges[PAGE] = (2 * PAGE, "theirs")
    with pytest.raises(AssertionError):
        lock.close()
    assert in_pages(driver) == []


@pytest.mark.timeout(300)  # or it waits for itself
def test_a_feed_that_is_collected_while_another_locks_pages_gives_its_own_back():
    driver = Driver()
    locks = PageLocks(driver)
    collected = held(driver, (0, 1), (3, 4), locks=locks)
    driver.before_lock = collected.close
    lock = held(driver, (0, 6), locks=locks)
    assert driver.covers(0, 6 * PAGE)
    assert in_pages(driver) == [(0, 1, "ours"), (1, 3, "ours"), (3, 4, "ours"), (4, 6, "ours")]
    lock.close()
    assert in_pages(driver) == []
