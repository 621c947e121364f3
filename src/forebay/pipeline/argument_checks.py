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
    """Return a whole number of at least 1 as int, or raise PipelineError."""
    number = check_number(count, call)
    if number < 1:
        raise PipelineError(f"{call.format(count)}: pass a whole number of at least 1.")
    return number


def check_number(number: Any, call: str) -> int:
    """Return an integer as int, or raise PipelineError.

    `call` is the user's call with a placeholder, such as "batch({})", for the error message.
    """
    try:
        if not isinstance(number, bool):
            return operator.index(number)
    except TypeError:
        pass
    value = " ".join(reprlib.repr(number).split())  # on one line, also for an array
    raise PipelineError(f"{call.format(value)}: pass a whole number, such as {call.format(8)}.")


DEFAULT_MAX_ERRORS = 0.001  # share of the received rows that on_error="skip" may skip


def check_error_limit(call: str, on_error: Any, max_errors: Any, *, gets_rows: bool = True) -> float | None:
    """Return the largest share of rows that may be skipped; None for no rows.

    `call` is the name of the function that the user called. `gets_rows` says whether a map receives single rows. Raise
    PipelineError for wrong values, and if a function of batches should skip rows.
    """
    if on_error not in ("raise", "skip"):
        raise PipelineError(f"{call}(on_error={on_error!r}) is unknown. Choose 'raise' or 'skip'.")
    if max_errors is not None and on_error == "raise":
        raise PipelineError(f"{call}(max_errors={max_errors!r}) needs on_error='skip'. Pass it too, or leave it out.")
    max_errors = DEFAULT_MAX_ERRORS if max_errors is None else max_errors
    is_number = isinstance(max_errors, int | float) and not isinstance(max_errors, bool)
    if not is_number or not 0 <= max_errors <= 1:
        raise PipelineError(f"{call}(max_errors={max_errors!r}): pass a share of all rows from 0 to 1, such as 0.001.")
    if on_error == "raise":
        return None
    if not gets_rows:
        raise PipelineError(
            f"{call}(on_error='skip') replaces single rows, but this function receives whole batches, whose good rows "
            "Forebay cannot see. Call map() with a function of rows before batch()."
        )
    return float(max_errors)


def refuse_error_limit(source: AbstractSource, call: str) -> None:
    """Raise PipelineError if unreadable rows of the source are skipped.

    `call` is the name of a method that makes a row of several rows, so there is no other row to replace one of them.
    """
    if source.error_limit is not None:
        raise PipelineError(
            f"{call}() makes each row of several rows, so no row can replace a single one that cannot be read. Leave "
            f"out on_error='skip' of {source.error_limit.name}()."
        )


def check_transform_options(where: Any, workers: Any) -> None:
    """Raise PipelineError if a ready-made transform, such as `fb.cast`, is sent to worker processes."""
    if where not in ("thread", "device"):
        raise PipelineError(
            f"map(where={where!r}): Forebay chooses where a transform of its own runs, such as fb.cast(). Leave where= "
            "out."
        )
    if workers is not None:
        raise PipelineError(
            f"map(workers={workers!r}) is for functions in worker processes, not for a transform of Forebay, such as "
            "fb.cast(). Leave workers= out."
        )
