"""The hand-off of ragged rows: joins the values and offsets of a slot to one object per field."""

from collections.abc import Callable, Sequence
from typing import Any

from forebay.core.handoff import HandOff, RaggedTarget
from forebay.core.ragged import Ragged
from forebay.pipeline.plan import PlanInput

__all__ = ["RaggedHandOff"]


class RaggedHandOff:
    """Hands off the arrays of a slot, and returns one object for each leaf.

    A slot has two arrays for a leaf of ragged rows, and one for any other leaf.
    """

    def __init__(self, hand_off: HandOff, plan_input: PlanInput) -> None:
        self._hand_off = hand_off
        self._is_ragged = [plan_input.is_ragged(leaf) for leaf in range(len(plan_input.specs))]
        self._join: Callable[[Any, Any], Any] = hand_off.join_ragged if isinstance(hand_off, RaggedTarget) else Ragged

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        arrays = iter(self._hand_off.hand_off(roots))
        return [self._join(next(arrays), next(arrays)) if is_ragged else next(arrays) for is_ragged in self._is_ragged]
