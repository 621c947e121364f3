"""Retries of `ast.parse`, which may fail in CPython 3.11 if two threads parse at once."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["parse_with_retries"]

MAX_ATTEMPTS = 20

Parsed = TypeVar("Parsed")


def parse_with_retries(parse: Callable[[], Parsed]) -> Parsed:
    """Return `parse()`. Call it again after a SystemError, up to `MAX_ATTEMPTS` times in total.

    CPython 3.11 counts the depth of `ast.parse` for all threads together. If two threads parse at the same time,
    `ast.parse` may raise SystemError for a valid text.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        with suppress(SystemError):
            return parse()
    return parse()
