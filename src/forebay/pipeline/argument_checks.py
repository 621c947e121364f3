"""Checks of the arguments of pipeline methods."""

import operator
import reprlib
from typing import Any

from forebay.core.source import AbstractSource
from forebay.errors import PipelineError

__all__ = [
    "check_count",
    "check_error_limit",
    "check_number",
    "check_transform_options",
    "refuse_error_limit",
]


def check_count(count: Any, call: str) -> int:
    """Return `count` as an int. Raise PipelineError unless it is at least 1.

    `call` is described in `check_number`.
    """
    number = check_number(count, call)
    if number < 1:
        raise PipelineError(f"{call.format(count)}: pass a whole number of at least 1.")
    return number


def check_number(number: Any, call: str) -> int:
    """Return `number` as an int, or raise PipelineError if it is not an integer.

    `call` is the user's call with a placeholder, such as "batch({})", for the error message.
    """
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    value = " ".join(reprlib.repr(number).split())  # the repr of an array may have several lines
    raise PipelineError(f"{call.format(value)}: pass a whole number, such as {call.format(8)}.")


DEFAULT_MAX_ERRORS = 0.001  # `max_errors` if the user does not pass it: one of 1,000 received rows may be skipped


def check_error_limit(call: str, on_error: Any, max_errors: Any, *, gets_rows: bool = True) -> float | None:
    """Return the largest share of rows that may be skipped; None with on_error="raise".

    `call` is the name of the function that the user called. `gets_rows` is False if the user's map receives whole
    batches. Raise PipelineError for wrong values, and for on_error="skip" if `gets_rows` is False.
    """
    if on_error not in ("raise", "skip"):
        raise PipelineError(f"{call}(on_error={on_error!r}) is unknown. Choose 'raise' or 'skip'.")
    if max_errors is not None and on_error == "raise":
        raise PipelineError(
            f"{call}(max_errors={max_errors!r}) needs on_error='skip'. Pass both, or leave max_errors= out."
        )
    max_errors = DEFAULT_MAX_ERRORS if max_errors is None else max_errors
    is_number = isinstance(max_errors, int | float) and not isinstance(max_errors, bool)
    if not is_number or not 0 <= max_errors <= 1:
        raise PipelineError(f"{call}(max_errors={max_errors!r}): pass a share of all rows from 0 to 1, such as 0.001.")
    if on_error == "raise":
        return None
    if not gets_rows:
        raise PipelineError(
            f"{call}(on_error='skip') replaces single rows, but this function receives whole batches, so Forebay "
            "cannot tell which row failed. Call map() with a function of rows before batch()."
        )
    return float(max_errors)


def refuse_error_limit(source: AbstractSource, call: str) -> None:
    """Raise PipelineError if the source skips unreadable rows.

    `call` is the name of a method that makes each row of several rows of the source, such as "window". If one of these
    rows is unreadable, no other row can take its place.
    """
    if source.error_limit is not None:
        raise PipelineError(
            f"{call}() makes each row of several rows of the source, so no other row can replace an unreadable one. "
            f"Leave out on_error='skip' of {source.error_limit.name}()."
        )


def check_transform_options(where: Any, workers: Any) -> None:
    """Raise PipelineError for options of `map()` that `fb.cast` and similar transforms do not take.

    Forebay itself chooses where its own transforms run, so they take neither `workers` nor most values of `where`.
    """
    if where not in ("thread", "device"):
        raise PipelineError(
            f"map(where={where!r}) is for functions. Forebay itself chooses where its own transforms run, such as "
            "fb.cast(). Leave where= out."
        )
    if workers is not None:
        raise PipelineError(
            f"map(workers={workers!r}) is for functions in worker processes, not for Forebay's own transforms, such as "
            "fb.cast(). Leave workers= out."
        )
