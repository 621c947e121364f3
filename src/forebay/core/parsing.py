"""Parsed Python code: retries of `ast.parse`, and the first line of a statement."""

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["first_line", "parse_with_retries"]

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


def first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement, its decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])
