"""A text is parsed again after a SystemError, which another thread may cause."""

import ast

import pytest

from forebay.core.parsing import MAX_ATTEMPTS, parse_with_retries


class FailingParser:
    """Parses a text after some SystemErrors, which `ast.parse` of CPython 3.11 may raise."""

    def __init__(self, failures):
        self.failures = failures

    def __call__(self):
        self.failures -= 1
        if self.failures >= 0:
            raise SystemError("AST constructor recursion depth mismatch")
        return ast.literal_eval("(1, 2)")


def test_a_text_is_parsed_again_after_a_system_error():
    assert parse_with_retries(FailingParser(failures=MAX_ATTEMPTS - 1)) == (1, 2)


def test_the_last_failure_is_raised():
    with pytest.raises(SystemError, match="depth mismatch"):
        parse_with_retries(FailingParser(failures=MAX_ATTEMPTS))


def test_a_text_with_an_error_is_parsed_once():
    calls = []

    def parse():
        calls.append(1)
        return ast.parse("x =")

    with pytest.raises(SyntaxError):
        parse_with_retries(parse)
    assert len(calls) == 1
