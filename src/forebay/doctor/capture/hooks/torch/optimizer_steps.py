"""The hook for ends of training steps: the script's first optimizer ends them."""

import weakref
from time import perf_counter_ns
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from forebay.doctor.capture.hooks.torch.call_hooks import TorchHooks
from forebay.doctor.model.events import EventKind

__all__ = ["hook_steps"]

STEP = "optimizer.step"  # API name in events
MAX_OTHER_STEPS = 8  # after this many steps without the first optimizer, another optimizer becomes the first


def hook_steps(hooks: TorchHooks) -> None:
    hooks.patches.add_undo(_OptimizerSteps(hooks).remove, api=STEP)


class _OptimizerSteps:
    """Records the steps of the first optimizer.

    A script that trains two networks in turn calls two optimizers in each step. Only the first one ends the step.
    """

    def __init__(self, hooks: TorchHooks) -> None:
        self._hooks = hooks
        self._first_optimizer: weakref.ref[Optimizer] | None = None
        self._other_steps = 0  # steps of other optimizers since the last step of the first one
        self._is_on, self._in_hook = True, False
        self._handle = register_optimizer_step_post_hook(self._on_step)

    def remove(self) -> None:
        """Remove the hook, or only switch it off while it runs.

        PyTorch iterates over a dict of hooks at that time. Removing any item but the last would raise an error.
        """
        self._is_on = False
        hooks = self._handle.hooks_dict_ref()
        if not self._in_hook or (hooks and next(reversed(hooks)) == self._handle.id):
            self._handle.remove()

    def _on_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._in_hook = True
        if not self._is_on:
            self.remove()
        elif self._hooks.ledger.is_on and self._ends_step(optimizer):
            self._record(perf_counter_ns())
        self._in_hook = False

    def _record(self, now: int) -> None:
        ledger = self._hooks.ledger
        try:
            ledger.write((EventKind.STEP, STEP, ledger.lines.current_line(2)), now, now)
        except Exception as error:
            ledger.note_failure(STEP, error)

    def _ends_step(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer ends a step of the training loop."""
        first = self._first_optimizer() if self._first_optimizer is not None else None
        self._other_steps = 0 if optimizer is first else self._other_steps + 1
        if first is None or self._other_steps >= MAX_OTHER_STEPS:
            self._first_optimizer, self._other_steps = weakref.ref(optimizer), 0
            return True
        return optimizer is first
