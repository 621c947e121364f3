"""The hook for ends of training steps: one optimizer, the step trainer, ends them."""

from time import perf_counter_ns
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from forebay.doctor.capture.hooks.step_trainer import StepTrainer
from forebay.doctor.capture.hooks.torch.call_hooks import TorchHooks
from forebay.doctor.model.events import EventKind

__all__ = ["hook_steps"]

STEP = "optimizer.step"  # API name in events
MAX_PARAMETERS = 256  # only this many parameters of an optimizer are examined


def hook_steps(hooks: TorchHooks) -> None:
    hooks.patches.add_undo(_OptimizerSteps(hooks).remove, api=STEP)


class _OptimizerSteps:
    """Records a training step at each `step` call of the optimizer that is the step trainer."""

    def __init__(self, hooks: TorchHooks) -> None:
        self._hooks = hooks
        self._step_trainer = StepTrainer()
        self._is_on, self._in_hook = True, False
        self._is_described = False  # whether an event has the settings of the optimizer
        self._handle = register_optimizer_step_post_hook(self._on_step)

    def remove(self) -> None:
        """Remove the hook, or only switch it off while it runs.

        While the hook runs, PyTorch iterates over its dict of hooks. Then removing any item but the last would raise an
        error.
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
        elif self._hooks.ledger.is_on and self._step_trainer.ends_step(optimizer):
            self._record(perf_counter_ns(), optimizer)
        self._in_hook = False

    def _record(self, now: int, optimizer: Any) -> None:
        ledger = self._hooks.ledger
        try:
            detail = None if self._is_described else _settings_of(optimizer)
            self._is_described = True
            ledger.write((EventKind.STEP, STEP, ledger.lines.current_line(2)), now, now, detail=detail)
        except Exception as error:
            ledger.note_failure(STEP, error)


def _settings_of(optimizer: Any) -> dict[str, Any]:
    """Return details of the first STEP event: `optimizer`, `fused` and `channels_last`.

    The name of an optimizer of PyTorch has no module: "AdamW", but "bitsandbytes.optim.AdamW". `channels_last` says
    whether filters of convolutions have this layout.
    """
    owner = type(optimizer)
    is_of_torch = owner.__module__.startswith("torch.optim.")
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    filters = [
        parameter for parameter, _ in zip(parameters, range(MAX_PARAMETERS), strict=False) if parameter.dim() == 4
    ]
    return {
        "optimizer": owner.__name__ if is_of_torch else f"{owner.__module__}.{owner.__name__}",
        "fused": any(bool(group.get("fused")) for group in optimizer.param_groups),
        "channels_last": any(map(_has_channels_last, filters)),
    }


def _has_channels_last(filters: Any) -> bool:
    """Whether filters have only the channels-last layout. Filters of one pixel have both layouts."""
    return bool(filters.is_contiguous(memory_format=torch.channels_last) and not filters.is_contiguous())
