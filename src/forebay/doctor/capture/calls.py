"""A function that tells of its calls: they are timed, and whatever is then said of them never disturbs them."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from forebay.doctor.capture.ledger import Ledger

__all__ = ["Then", "hooked", "hooked_open"]

Then = Callable[[int, int, Any, tuple[Any, ...], dict[str, Any]], None]  # start, end, result, arguments and keywords
When = Callable[..., bool]  # whether a call with such arguments is worth it


def hooked(
    ledger: Ledger, api: str, original: Callable[..., Any], then: Then, when: When | None = None
) -> Callable[..., Any]:
    """The same function; `then` is told of each call as it ends, unless that is part of one that is being watched."""
    enter, leave = ledger.enter, ledger.leave

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (when is not None and not when(*args, **kwargs)) or not enter():
            return original(*args, **kwargs)
        try:
            start = perf_counter_ns()
            result = original(*args, **kwargs)
            end = perf_counter_ns()  # before it is described, which is our time and not the script's
            try:
                then(start, end, result, args, kwargs)
            except Exception as error:
                ledger.failed(api, error)
            return result
        finally:
            leave()

    return hook


def hooked_open(
    ledger: Ledger, api: str, original: Callable[..., Any], then: Then, when: When | None = None
) -> Callable[..., Any]:
    """The same, but what is called inside is to be seen too: nothing is entered before that is over."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if (when is not None and not when(*args, **kwargs)) or not ledger.is_open():
            return original(*args, **kwargs)
        start = perf_counter_ns()
        result = original(*args, **kwargs)
        end = perf_counter_ns()
        if ledger.enter():
            try:
                then(start, end, result, args, kwargs)
            except Exception as error:
                ledger.failed(api, error)
            finally:
                ledger.leave()
        return result

    return hook
