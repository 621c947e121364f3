"""One decision of the planner, as `explain()` prints it."""

from dataclasses import dataclass

__all__ = ["Decision", "function_name"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of `explain()`."""

    name: str  # what the planner decided, such as "threads"
    choice: str  # the result of the decision, such as "4"
    why: str  # the reason for the choice


def function_name(function: object) -> str:
    """Return the name of a callable for `explain()` and error messages.

    It is the first of the attributes `__qualname__`, `__name__` and `name` that is a string, else the name of the
    callable's class. For example, ufuncs of older versions of NumPy have no `__qualname__`.
    """
    names = (getattr(function, attribute, None) for attribute in ("__qualname__", "__name__", "name"))
    return next((name for name in names if isinstance(name, str)), type(function).__qualname__)
