"""Shared prefetching: each source receives the row numbers of its gathers, and none waits forever."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.rows import row_count, row_numbers
from forebay.core.source import AbstractSource
from forebay.core.spec import ArraySpec, Structure
from forebay.sources import shared_prefetch
from forebay.sources.combined import JoinedSource, ZippedSource
from forebay.sources.shared_prefetch import SharedPrefetch


class Prefetching(AbstractSource):
    """A source that records the gathered groups and the groups to prefetch. A thread reads the groups to prefetch."""

    can_prefetch = True

    def __init__(self, length, *, row_nbytes=4, limit=None):
        self.specs, self.structure = (ArraySpec((row_nbytes,), "u1"),), Structure(None)
        self._length, self._limit = length, limit
        self.planned, self.gathered, self.thread = [], [], None
        self.is_closed = False

    def __len__(self):
        return self._length

    def gather(self, rows, out):
        self.gathered.append(list(row_numbers(rows)))

    def prefetch(self, upcoming):
        self.thread = threading.Thread(target=self._read, args=(upcoming,))
        self.thread.start()
        return self

    def _read(self, upcoming):
        for rows in upcoming:
            self.planned.append(list(row_numbers(rows)))
            if len(self.planned) == self._limit:
                return

    def close(self):
        self.is_closed = True


class Pausing(Prefetching):
    """Keeps the iterator after the last group that it reads."""

    def prefetch(self, upcoming):
        self.upcoming = upcoming
        return super().prefetch(upcoming)


class Unprefetched(Prefetching):
    def prefetch(self, upcoming):
        return None


def gather_all(source, groups):
    for rows in groups:
        source.gather(rows, [spec.empty(row_count(rows)) for spec in source.specs])


groups_of_rows = st.lists(
    st.lists(st.integers(0, 29), min_size=1, max_size=40).map(lambda rows: np.array(rows, np.intp))
    | st.tuples(st.integers(0, 29), st.integers(0, 29)).map(lambda ends: slice(min(ends), max(ends) + 1)),
    max_size=12,
)


@given(groups=groups_of_rows, row_nbytes=st.sampled_from([4, 40_000, 400_000]))
def test_each_part_prefetches_exactly_the_rows_of_its_gathers(groups, row_nbytes):
    parts = [Prefetching(12, row_nbytes=row_nbytes), Unprefetched(5), Prefetching(13)]
    source = JoinedSource(parts)
    prefetch = source.prefetch(iter(groups))
    for part in (parts[0], parts[2]):
        part.thread.join()
    gather_all(source, groups)
    assert [part.planned for part in parts] == [parts[0].gathered, [], parts[2].gathered]
    prefetch.close()
    assert [part.is_closed for part in parts] == [True, False, True]


@given(groups=groups_of_rows)
def test_zipped_parts_prefetch_the_same_rows(groups):
    parts = [Prefetching(30), Prefetching(30)]
    source = ZippedSource(parts, Structure(tuple, (0, 1), (Structure(None), Structure(None))))
    source.prefetch(iter(groups))
    for part in parts:
        part.thread.join()
    gather_all(source, groups)
    assert parts[0].planned == parts[1].planned == parts[0].gathered


def test_a_part_does_not_read_far_beyond_the_others(monkeypatch):
    monkeypatch.setattr(shared_prefetch, "MAX_WAITING_ROWS", 100)
    taken = []
    first, second = Pausing(1000, limit=3), Prefetching(1000)
    groups = (taken.append(start) or slice(start, start + 10) for start in range(0, 2000, 10))
    prefetch = JoinedSource([first, second]).prefetch(groups)
    first.thread.join()
    second.thread.join(0.2)
    assert second.thread.is_alive()
    assert len(taken) <= 3 + 11
    prefetch.close()
    second.thread.join()
    assert second.planned == []


def test_a_part_that_needs_no_more_rows_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(shared_prefetch, "MAX_WAITING_ROWS", 100)
    parts = [Prefetching(10, limit=2) for _ in range(3)]
    inner = ZippedSource(parts[:2], Structure(tuple, (0, 1), (Structure(None), Structure(None))))
    long = Prefetching(10)
    structure = Structure(tuple, (0, 1, 2, 3), (Structure(None),) * 4)
    prefetch = ZippedSource([inner, parts[2], long], structure).prefetch(slice(0, 10) for _ in range(50))
    long.thread.join(20)
    prefetch.close()
    assert [len(part.planned) for part in (*parts, long)] == [2, 2, 2, 50]


def test_an_error_in_a_part_closes_the_prefetches_of_the_parts_before_it():
    class Failing(Prefetching):
        def prefetch(self, upcoming):
            raise OSError("no thread")

    first = Prefetching(10)
    with pytest.raises(OSError, match="no thread"):
        JoinedSource([first, Failing(10)]).prefetch(iter([]))
    assert first.is_closed


def test_an_error_in_split_ends_all_parts():
    class Forgiving(Prefetching):
        def _read(self, upcoming):
            try:
                super()._read(upcoming)
            except ValueError:
                self.planned.append("failed")

    def groups():
        yield slice(0, 2)
        time.sleep(0.1)  # the other part waits now
        yield slice(2, 4)

    def split(rows):
        yield 0, rows
        if rows.start:
            raise ValueError("no such row")
        yield 1, rows

    parts = [Forgiving(10), Forgiving(10)]
    prefetch = SharedPrefetch(groups(), parts, split)
    for part in parts:
        part.thread.join(20)
    is_waiting = [part.thread.is_alive() for part in parts]
    prefetch.close()
    assert is_waiting == [False, False]
    assert sorted((part.planned for part in parts), key=len) == [[[0, 1]], [[0, 1], "failed"]]


def test_closing_ends_parts_that_wait_for_a_slow_iterator():
    entered, released = threading.Event(), threading.Event()

    def slow():
        entered.set()
        released.wait()
        yield slice(0, 4)

    first, second = Prefetching(10), Prefetching(10)
    prefetch = JoinedSource([first, second]).prefetch(slow())
    entered.wait()
    closing = threading.Thread(target=prefetch.close)
    closing.start()
    closing.join()
    released.set()
    for part in (first, second):
        part.thread.join()
    assert first.planned == second.planned == []


def test_an_error_in_the_iterator_ends_all_parts():
    def failing():
        yield slice(0, 20)
        raise ValueError("no row numbers")

    class Forgiving(Prefetching):
        def _read(self, upcoming):
            try:
                super()._read(upcoming)
            except ValueError:
                self.planned.append("failed")

    first, second = Forgiving(10), Forgiving(10)
    assert SharedPrefetch(failing(), [first, second], JoinedSource([first, second])._part_gather.split)
    for part in (first, second):
        part.thread.join()
    assert ("failed" in first.planned) + ("failed" in second.planned) == 1
