"""Decoder threads decode a group on all cores, and raise the first failed row's error."""

import os
import threading
from concurrent.futures import wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.sources import decoder_threads
from forebay.sources.decoder_threads import decode_rows


@given(st.lists(st.integers(0, 100)))
def test_each_row_is_decoded_once_at_its_position(numbers):
    calls = []
    decode_rows(lambda position, number: calls.append((position, number)), numbers)
    assert sorted(calls) == list(enumerate(numbers))


@given(st.sets(st.integers(0, 40), min_size=1))
def test_the_error_of_the_first_row_that_fails_is_raised(failing):
    with pytest.raises(ValueError, match=f"^row {min(failing)}$"):
        decode_rows(lambda position, _: fail_if(position in failing, position), range(41))


def test_one_group_uses_as_many_threads_as_cores(monkeypatch):
    """Each row waits until 16 rows are being decoded at the same time."""
    monkeypatch.setattr(decoder_threads, "decoder_thread_count", lambda: 16)
    decoder_threads._thread_pool.cache_clear()
    barrier = threading.Barrier(16, timeout=60)
    decode_rows(lambda *_: barrier.wait(), range(32))
    decoder_threads._thread_pool.cache_clear()


def test_two_groups_at_the_same_time_both_finish():
    calls = []
    groups = [threading.Thread(target=decode_rows, args=(lambda *row: calls.append(row), range(100))) for _ in range(2)]
    [group.start() for group in groups]
    [group.join() for group in groups]
    assert len(calls) == 200


def test_no_row_is_decoded_after_an_interrupt(monkeypatch):
    """The interrupt arrives while two threads decode the first two rows."""
    monkeypatch.setattr(decoder_threads, "decoder_thread_count", lambda: 2)
    decoder_threads._thread_pool.cache_clear()
    both_decode, may_end, decoded = threading.Barrier(3, timeout=60), threading.Event(), []

    def decode(position, number):
        if position < 2:
            both_decode.wait()
        may_end.wait(60)
        decoded.append(number)

    def interrupt(_):
        monkeypatch.setattr(decoder_threads, "wait", let_rows_end)
        both_decode.wait()
        raise KeyboardInterrupt

    def let_rows_end(futures):
        may_end.set()
        wait(futures)

    monkeypatch.setattr(decoder_threads, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decode_rows(decode, range(50))
    decoded_before_return = sorted(decoded)
    decode_rows(lambda *_: None, range(50))  # the threads begin these rows after all tasks of the first group
    assert decoded_before_return == sorted(decoded) == [0, 1]
    decoder_threads._thread_pool.cache_clear()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads():
    decode_rows(lambda *_: None, range(10))
    child = os.fork()
    if child == 0:
        rows = []
        decode_rows(lambda *row: rows.append(row), range(10))
        os._exit(0 if len(rows) == 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fail_if(is_failing, position):
    if is_failing:
        raise ValueError(f"row {position}")
