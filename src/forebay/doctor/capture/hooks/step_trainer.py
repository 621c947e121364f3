"""The choice of the trainer whose calls end the steps."""

import weakref
from typing import Any

__all__ = ["StepTrainer"]

MAX_OTHER_CALLS = 8  # after this many calls of other trainers, the last of them becomes the step trainer


class StepTrainer:
    """Chooses the step trainer: the model or optimizer whose calls end steps.

    Only one trainer ends steps, because a script that trains two models in turn trains both in each step. It is the
    trainer that was called first.
    """

    def __init__(self) -> None:
        self._trainer: weakref.ref[Any] | None = None
        self._other_calls = 0  # calls of other trainers since the last call of the step trainer

    def ends_step(self, trainer: Any) -> bool:
        """Whether a call of this trainer ends a step. The call counts for the choice."""
        step_trainer = self._trainer() if self._trainer is not None else None
        self._other_calls = 0 if trainer is step_trainer else self._other_calls + 1
        if step_trainer is None or self._other_calls >= MAX_OTHER_CALLS:
            self._trainer, self._other_calls = weakref.ref(trainer), 0
            return True
        return trainer is step_trainer
