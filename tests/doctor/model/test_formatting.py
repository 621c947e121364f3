"""Numbers and texts in the form that reports show."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.model import formatting
from forebay.doctor.model.events import Line


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (2e-9, "2.00 ns"), (0.0009996, "1.00 ms"), (0.0119, "11.9 ms"), (0.9994, "999 ms"), (0.9999, "1.00 s"),
     (75.25, "75.2 s"), (4000, "4,000 s")],
)  # fmt: skip
def test_a_time_is_rounded_to_three_significant_digits(value, text):
    assert formatting.format_seconds(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (0.0001, "0%"), (0.031, "3.1%"), (0.0996, "10%"), (0.5, "50%"), (1, "100%")]
)
def test_shares_from_0_05_to_10_percent_have_one_decimal(share, text):
    assert formatting.format_percent(share) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0, 0.05, "1.00 to 1.05 x"), (0.4, 0.5, "1.7 to 2.0 x"), (0.5, 0.5, "2.0 x"), (0.9, 1.0, "up to 100 x"),
     (0.9, 7.0, "up to 100 x")],
)  # fmt: skip
def test_a_speedup_is_never_infinite(low, high, text):
    assert formatting.format_speedup(low, high, 1.0) == text


@given(st.floats(0, 1e6))
def test_every_formatted_time_is_short(value):
    assert len(formatting.format_seconds(value)) <= 11


@given(st.text())
def test_one_line_contains_no_terminal_control_characters(text):
    assert formatting.to_one_line(text).isprintable()


def test_the_examples_in_docstrings_are_right():
    assert doctest.testmod(formatting).failed == 0


def test_a_line_of_a_notebook_cell_is_named_as_in_a_traceback():
    line = Line("Cell In[9]", 12, "<module>")
    assert formatting.format_location(line, "/home/me/train.ipynb") == str(line) == "Cell In[9], line 12"
