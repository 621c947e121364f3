"""One decision and why it was made, for `explain()`."""

from dataclasses import dataclass

__all__ = ["Reason"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One decision, for `explain()`."""

    name: str
    choice: str
    why: str
