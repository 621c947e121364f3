"""Parsing of Python literals and sources while other threads parse too."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["parse_undisturbed"]

ATTEMPTS = 20

Parsed = TypeVar("Parsed")


def parse_undisturbed(parse: Callable[[], Parsed]) -> Parsed:
    """Return `parse()`. Try again if another thread disturbed it.

    CPython 3.11 counts the depth of `ast.parse` for all threads together. If two threads parse at the same time, it may
    raise SystemError for a valid text.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(SystemError):
            return parse()
    return parse()
