"""Where PyTorch's training steps end: with the step of an optimizer, of one if there are several."""

import weakref
from time import perf_counter_ns
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from forebay.doctor.capture.hooks.torch.watcher import Watcher
from forebay.doctor.model.events import Kind

__all__ = ["watch_steps"]

STEP = "optimizer.step"
SILENT_STEPS = 8  # of others, after which an optimizer counts as no longer in use


def watch_steps(watcher: Watcher) -> None:
    watcher.patches.undo_with(_Steps(watcher).remove, api=STEP)


class _Steps:
    """The first optimizer seen ends a step: two networks that are trained in turn make one step together."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._first: weakref.ref[Optimizer] | None = None
        self._since = 0  # steps of others since that one's last
        self._on, self._called = True, False
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def remove(self) -> None:
        """Go: at once, or in a call, where torch goes through its hooks, as soon as it is the last of them."""
        self._on = False
        hooks = self._handle.hooks_dict_ref()
        if not self._called or (hooks and next(reversed(hooks)) == self._handle.id):
            self._handle.remove()

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._called = True
        if not self._on:
            self.remove()
        elif self._watcher.ledger.on and self._ends_a_step(optimizer):
            self._write(perf_counter_ns())
        self._called = False

    def _write(self, now: int) -> None:
        ledger = self._watcher.ledger
        try:
            ledger.write(Kind.STEP, STEP, ledger.lines.here(2), now, now)
        except Exception as error:
            ledger.failed(STEP, error)

    def _ends_a_step(self, optimizer: Any) -> bool:
        first = self._first() if self._first is not None else None
        self._since = 0 if optimizer is first else self._since + 1
        if first is None or self._since >= SILENT_STEPS:
            self._first, self._since = weakref.ref(optimizer), 0
            return True
        return optimizer is first
