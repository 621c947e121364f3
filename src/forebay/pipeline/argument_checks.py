"""Checks of the arguments of pipeline methods."""

import operator
from typing import Any

from forebay.errors import PipelineError

__all__ = ["check_count", "check_number"]


def check_count(count: Any, call: str) -> int:
    """Return a whole number of at least 1 as int, or raise PipelineError."""
    number = check_number(count, call)
    if number < 1:
        raise PipelineError(f"{call.format(count)}: pass a whole number of at least 1.")
    return number


def check_number(number: Any, call: str) -> int:
    """Return an integer as int, or raise PipelineError. `call` is the user's call, such as "batch({})"."""
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    raise PipelineError(f"{call.format(repr(number))}: pass a whole number, such as {call.format(8)}.")
