"""Numbers and texts as people read them."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.model import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (2e-9, "2.00 ns"), (0.0009996, "1.00 ms"), (0.0119, "11.9 ms"), (0.9994, "999 ms"), (0.9999, "1.00 s"),
     (75.25, "75.2 s"), (4000, "4,000 s")],
)  # fmt: skip
def test_a_time_has_three_digits(value, text):
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (0.0001, "0%"), (0.031, "3.1%"), (0.0996, "10%"), (0.5, "50%"), (1, "100%")]
)
def test_small_shares_have_a_digit_more(share, text):
    assert formatting.percent(share) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0, 0.05, "1.00 to 1.05 x"), (0.4, 0.5, "1.7 to 2.0 x"), (0.5, 0.5, "2.0 x"), (0.9, 1.0, "10 to 100 x"),
     (0.9, 7.0, "10 to 100 x")],
)  # fmt: skip
def test_a_gain_is_never_without_end(low, high, text):
    assert formatting.interval(low, high, 1.0) == text


@given(st.floats(0, 1e6))
def test_every_time_is_short(value):
    assert len(formatting.seconds(value)) <= 11


@given(st.text())
def test_what_is_printed_cannot_steer_a_terminal(text):
    assert formatting.plain(text).isprintable()


def test_the_examples_hold():
    assert doctest.testmod(formatting).failed == 0
