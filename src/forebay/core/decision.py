"""One planning decision, as shown by `explain()`."""

from dataclasses import dataclass

__all__ = ["Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, the chosen value, and the reason."""

    name: str
    choice: str
    why: str
