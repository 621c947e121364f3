"""Parsing is tried again if another thread disturbed it."""

import ast

import pytest

from forebay.core.parsing import ATTEMPTS, parse_undisturbed


class Disturbed:
    """Parses a text, and raises SystemError in the first calls, as `ast.parse` of CPython 3.11 may do."""

    def __init__(self, failures):
        self.failures = failures

    def __call__(self):
        self.failures -= 1
        if self.failures >= 0:
            raise SystemError("AST constructor recursion depth mismatch")
        return ast.literal_eval("(1, 2)")


def test_a_disturbed_text_is_parsed_again():
    assert parse_undisturbed(Disturbed(failures=ATTEMPTS - 1)) == (1, 2)


def test_the_last_failure_is_raised():
    with pytest.raises(SystemError, match="depth mismatch"):
        parse_undisturbed(Disturbed(failures=ATTEMPTS))


def test_a_text_with_an_error_is_parsed_once():
    calls = []

    def parse():
        calls.append(1)
        return ast.parse("x =")

    with pytest.raises(SyntaxError):
        parse_undisturbed(parse)
    assert len(calls) == 1
