"""One decision of the planner, as `explain()` prints it."""

from dataclasses import dataclass

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of `explain()`."""

    name: str  # such as "threads"
    choice: str  # such as "4"
    why: str  # the reason for the choice
