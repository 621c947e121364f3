"""Keras, on any backend: where steps end, what `compile` and `fit` make, and who makes the batches.

With TensorFlow the wait for batches is inside a compiled function (see `tensorflow/waits.py`); with PyTorch it is that
of the DataLoader which Keras makes.
"""

import sys
import weakref
from functools import partial
from time import perf_counter_ns
from typing import Any

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.callbacks.callback_list import CallbackList
from keras.src.optimizers.base_optimizer import BaseOptimizer

from forebay.doctor.capture.hooks.calls import Call, quietly, watch_call, write
from forebay.doctor.capture.hooks.input_stages import fits
from forebay.doctor.capture.hooks.keras.data import watch_data
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["install"]

FIT, ON_BATCH, APPLY = "Model.fit", "Model.train_on_batch", "Optimizer.apply"
SILENT_STEPS = 8  # of others, after which whoever ended steps counts as no longer in use


def install(patches: Patches) -> None:
    steps = _Steps(patches.ledger)
    patches.replace(keras.Model, "fit", steps.inside, api=FIT)
    patches.replace(CallbackList, "on_train_begin", steps.began, api=FIT)
    patches.replace(CallbackList, "on_train_batch_end", steps.batch, api=FIT)
    patches.replace(CallbackList, "on_train_end", steps.ended, api=FIT)
    patches.replace(keras.Model, "train_on_batch", partial(steps.outermost, ON_BATCH), api=ON_BATCH)
    patches.replace(BaseOptimizer, "apply", partial(steps.outermost, APPLY), api=APPLY)
    made = partial(_made, patches.ledger)
    watch_call(patches, keras.Model, "compile", api="Model.compile", then=made, inner="seen")
    remade = partial(_remade, patches.ledger)
    patches.replace(keras.Model, "make_train_function", remade, api="Model.make_train_function")
    watch_data(patches)


class _Steps:
    """Each step ends once: with the batch of a `fit`, else with whatever outside of it trains the model."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._depth = 0  # of things that train, one inside the other
        self._late = False  # a `fit` goes on that was called before the hooks were there
        self._first: weakref.ref[Any] | None = None
        self._since = 0  # steps of others since that one's last

    def inside(self, original: Any) -> Any:
        """Let `fit` be known to go on."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            fits.begun += 1
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return hook

    def began(self, original: Any) -> Any:
        """A callback may have begun the watch: `fit` was called before that."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self._depth, self._late = 1, True
            return original(*args, **kwargs)

        return hook

    def ended(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if self._late:
                self._depth, self._late = self._depth - 1, False
            return original(*args, **kwargs)

        return hook

    def batch(self, original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if self._ledger.on and self._depth:
                self._write(FIT)
            return result

        return hook

    def outermost(self, api: str, original: Any) -> Any:
        def hook(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = original(trainer, *args, **kwargs)
            finally:
                self._depth -= 1
            if self._ledger.on and not self._depth and _runs_now() and self._is_first(trainer):
                self._write(api)
            return result

        return hook

    def _is_first(self, trainer: Any) -> bool:
        """Two networks that are trained in turn make one step together."""
        first = self._first() if self._first is not None else None
        self._since = 0 if trainer is first else self._since + 1
        if first is None or self._since >= SILENT_STEPS:
            self._first, self._since = weakref.ref(trainer), 0
            return True
        return trainer is first

    def _write(self, api: str) -> None:
        now = perf_counter_ns()
        quietly(self._ledger, api, partial(self._ledger.add, Kind.STEP, api, now, end=now))


def _runs_now() -> bool:
    """Not while a step is traced, which happens once for all of them."""
    tensorflow = sys.modules.get("tensorflow")
    tracing = tensorflow is not None and hasattr(tensorflow, "executing_eagerly") and not tensorflow.executing_eagerly()
    return not tracing and not in_stateless_scope()


def _made(ledger: Ledger, call: Call) -> None:
    write(ledger, Kind.BUILD, "Model.compile", call, detail={"what": "Model"})


def _remade(ledger: Ledger, original: Any) -> Any:
    """What `compile` undoes, the next `fit` makes again."""

    def hook(model: Any, *args: Any, **kwargs: Any) -> Any:
        before, start = getattr(model, "train_function", None), perf_counter_ns()
        result = original(model, *args, **kwargs)
        if ledger.on and getattr(model, "train_function", None) is not before:
            call = Call(start, perf_counter_ns(), result, (), {})
            detail = {"function": "train_function", "reason": "first"}
            quietly(ledger, FIT, partial(write, ledger, Kind.COMPILE, "Model.fit", call, detail=detail))
        return result

    return hook
