"""Hooks for Keras: ends of steps, calls of `compile`, and the input of `fit`.

The hooks work with every backend. Only the waits of `fit` for batches are recorded in different places:
- JAX: in `data.py`
- TensorFlow: in `tensorflow/input_waits.py`, because `fit` waits inside a compiled function
- PyTorch: in the hooks of the DataLoader, which Keras creates
"""

import sys
from functools import partial
from time import perf_counter_ns
from typing import Any

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.callbacks.callback_list import CallbackList
from keras.src.optimizers.base_optimizer import BaseOptimizer

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call, record_call, run_guarded
from forebay.doctor.capture.hooks.input_stages import fit_counter
from forebay.doctor.capture.hooks.keras.data import hook_data
from forebay.doctor.capture.hooks.step_trainer import StepTrainer
from forebay.doctor.capture.hooks.switches import SettingSpans, Switch
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.debug_settings import DebugSetting
from forebay.doctor.model.events import EventKind

__all__ = ["SWITCHES", "install"]

FIT, ON_BATCH, APPLY = "Model.fit", "Model.train_on_batch", "Optimizer.apply"  # API names in events


def install(patches: Patches) -> None:
    steps = _StepHooks(patches.ledger)
    patches.replace(keras.Model, "fit", steps.hook_fit, api=FIT)
    patches.replace(CallbackList, "on_train_begin", steps.hook_train_begin, api=FIT)
    patches.replace(CallbackList, "on_train_batch_end", steps.hook_batch_end, api=FIT)
    patches.replace(CallbackList, "on_train_end", steps.hook_train_end, api=FIT)
    patches.replace(keras.Model, "train_on_batch", partial(steps.hook_step, ON_BATCH), api=ON_BATCH)
    patches.replace(BaseOptimizer, "apply", partial(steps.hook_step, APPLY), api=APPLY)
    on_compile = partial(_record_compile, patches.ledger)
    hook_call(patches, keras.Model, "compile", CallHook("Model.compile", on_compile, nested="recorded"))
    hook_train_function = partial(_hook_train_function, patches.ledger)
    patches.replace(keras.Model, "make_train_function", hook_train_function, api="Model.make_train_function")
    SettingSpans(patches).hook(*SWITCHES)
    hook_data(patches)


def _eager_state(model: Any, *_: Any, run_eagerly: Any = False, **__: Any) -> bool:
    return bool(run_eagerly)


SWITCHES = (Switch(DebugSetting.MODEL_EAGER, keras.Model, "compile", _eager_state, "run_eagerly"),)


class _StepHooks:
    """Records each step once.

    Inside `fit`, a step ends with each `on_train_batch_end`. Elsewhere, it ends with an outermost `train_on_batch` or
    `apply` of the step trainer, which is a model or an optimizer.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._depth = 0  # number of nested training calls: `fit`, `train_on_batch`, `apply`
        self._missed_fit_call = False  # the hooks were installed inside the running `fit`
        self._step_trainer = StepTrainer()

    def hook_fit(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            fit_counter.count += 1
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return hook

    def hook_train_begin(self, original: Any) -> Any:
        """Hook the start of training, to detect a `fit` that the hooks have missed.

        A callback may start the session inside `fit`.
        """

        def hook(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self._depth, self._missed_fit_call = 1, True
            return original(*args, **kwargs)

        return hook

    def hook_train_end(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if self._missed_fit_call:
                self._depth, self._missed_fit_call = self._depth - 1, False
            return original(*args, **kwargs)

        return hook

    def hook_batch_end(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._ledger.is_on and self._depth:
                self._record_step(FIT)
            return result

        return hook

    def hook_step(self, api: str, original: Any) -> Any:
        def hook(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = original(trainer, *args, **kwargs)
            finally:
                self._depth -= 1
            if self._ledger.is_on and not self._depth and _is_executing() and self._step_trainer.ends_step(trainer):
                self._record_step(api)
            return result

        return hook

    def _record_step(self, api: str) -> None:
        now = perf_counter_ns()
        run_guarded(self._ledger, api, partial(self._ledger.add, EventKind.STEP, api, now, end=now))


def _is_executing() -> bool:
    """Whether operations run now; False while TensorFlow or JAX traces the step function."""
    tensorflow = sys.modules.get("tensorflow")
    is_tracing = (
        tensorflow is not None and hasattr(tensorflow, "executing_eagerly") and not tensorflow.executing_eagerly()
    )
    return not is_tracing and not in_stateless_scope()


def _record_compile(ledger: Ledger, call: HookedCall) -> None:
    model = call.args[0]
    settings = {
        "jit_compile": getattr(model, "_jit_compile", None),  # reading the property `jit_compile` would set it
        "run_eagerly": getattr(model, "run_eagerly", None),
        "steps_per_execution": getattr(model, "steps_per_execution", None),
    }
    detail = {name: value for name, value in settings.items() if isinstance(value, bool | int)}
    record_call(ledger, EventKind.BUILD, "Model.compile", call, detail={"what": "Model"} | detail)


def _hook_train_function(ledger: Ledger, original: Any) -> Any:
    """Return a hook that records when `fit` creates its step function.

    `Model.compile` discards this function, so the next `fit` creates it again.
    """

    def hook(model: Any, *args: Any, **kwargs: Any) -> Any:
        old_function, start = getattr(model, "train_function", None), perf_counter_ns()
        result = original(model, *args, **kwargs)
        if ledger.is_on and getattr(model, "train_function", None) is not old_function:
            call = HookedCall(start, perf_counter_ns(), result, (), {})
            detail = {"function": "train_function", "reason": "first"}
            run_guarded(ledger, FIT, partial(record_call, ledger, EventKind.COMPILE, FIT, call, detail=detail))
        return result

    return hook
