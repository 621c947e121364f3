"""Keras internals that Forebay uses: the adapter class, and the arguments of the running `fit`.

Keras does not pass the arguments of `fit` to a `DataAdapter`, so `class_weight=`, `batch_size=` and others would have
no effect. Forebay reads them from the stack frames of the call, once per epoch. If the frames of a Keras version differ
from those that Forebay knows, `running_call` logs a warning and returns None.
"""

import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import keras

from forebay.errors import FrameworkError

try:
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter
    from keras.src.trainers.epoch_iterator import EpochIterator
except ImportError as error:
    raise FrameworkError(
        f"Keras {keras.__version__} has no DataAdapter where Forebay expects it. Use Keras 3.12 or later, or use "
        f"feed({keras.backend.backend()!r}) in a training loop.",
        name="keras",
    ) from error

__all__ = [
    "DataAdapter",
    "KerasCall",
    "backend_target",
    "is_building_model",
    "is_one_batch_ahead",
    "calling_epoch_iterator",
    "limit_prefetch",
    "running_call",
    "set_num_batches",
    "set_steps_per_epoch",
]

_log = logging.getLogger("forebay.keras")
_METHODS = ("fit", "evaluate", "predict")
# backend of Keras -> framework whose arrays the feed returns
_TARGETS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch", "numpy": "numpy", "openvino": "numpy"}


@dataclass(frozen=True, slots=True)
class KerasCall:
    """The running call of `fit`, `evaluate` or `predict`."""

    method: str  # "fit", "evaluate" or "predict"
    model: Any
    arguments: Mapping[str, Any]  # all arguments by name, including defaults
    explicit_keywords: Mapping[str, Any]  # only the keyword arguments that the user wrote
    owner: weakref.ref[Any] | None  # Keras's EpochIterator of this call; weak, because it refers to an EpochBatches

    def role_of(self, feed: Any) -> str:
        """Return the role of the feed: "fit", "validation", "evaluate" or "predict"."""
        return "validation" if self.method == "fit" and self.arguments.get("x") is not feed else self.method

    @property
    def validation_x(self) -> Any:
        """The first part of `validation_data`, or the whole argument if it is no tuple."""
        data = self.arguments.get("validation_data")
        return data[0] if isinstance(data, tuple | list) and data else data


def running_call() -> KerasCall | None:
    """Return the innermost `fit`, `evaluate` or `predict` on this thread, or None."""
    owner: weakref.ref[Any] | None = None
    for frame in _keras_frames():
        frame_self = frame.f_locals.get("self")
        if isinstance(frame_self, EpochIterator):
            owner = weakref.ref(frame_self)
        # With `use_cached_eval_dataset`, fit() called this evaluate(). The user's arguments are in the frame of fit().
        elif frame.f_code.co_name in _METHODS and not frame.f_locals.get("use_cached_eval_dataset"):
            return KerasCall(frame.f_code.co_name, frame_self, dict(frame.f_locals), _explicit_keywords(frame), owner)
    if owner is not None:
        _log.warning(
            "Forebay cannot read the arguments of fit() in Keras %s. If you pass class_weight, sample_weight, y, "
            "batch_size or shuffle together with a feed, Keras ignores them.",
            keras.__version__,
        )
    return None


def calling_epoch_iterator(function: str | None = None) -> Any:
    """Return Keras's `EpochIterator` if one of its methods called the caller of this function.

    Otherwise return None. With `function`, return None also if that method has another name.
    """
    frame = sys._getframe(2)
    owner = frame.f_locals.get("self")
    if not isinstance(owner, EpochIterator) or function not in (None, frame.f_code.co_name):
        return None
    return owner


def is_building_model() -> bool:
    """Return whether Keras takes a batch only to read its shapes."""
    return any(frame.f_code.co_name.endswith("_symbolic_build") for frame in _keras_frames())


def is_one_batch_ahead() -> bool:
    """Return whether Keras called the caller of this function one step early.

    The JAX trainer does so on an accelerator.
    """
    return sys._getframe(2).f_code.co_name == "_one_batch_ahead_iterator"


def limit_prefetch(epoch_iterator: Any, *, is_on_device: bool) -> None:
    """Prevent needless calls of `device_put`, and a prefetch of two batches, in the JAX trainer.

    The trainer would call `device_put` for every array, even if the array is already on the device. This takes 0.1 ms
    of Python per step. Before Keras 3.14, the trainer also takes two batches early, so the state would count batches
    that the model has not seen.
    """
    if is_on_device and hasattr(epoch_iterator, "_one_batch_ahead_iterator"):
        epoch_iterator._one_batch_ahead_iterator = _return_unchanged
    if hasattr(epoch_iterator, "_prefetch_numpy_iterator"):  # Keras before 3.14
        epoch_iterator._prefetch_numpy_iterator = _return_unchanged if is_on_device else _send_one_by_one


def set_num_batches(epoch_iterator: Any, batches: int | None) -> None:
    """Set the number of batches that Keras expects in this epoch.

    Keras reads the number only once per call of `fit`, so it would warn at the end of a shorter, resumed epoch that the
    data ran out. Do nothing if this version of Keras keeps the number elsewhere.
    """
    if hasattr(epoch_iterator, "_num_batches"):
        epoch_iterator._num_batches = batches


def set_steps_per_epoch(epoch_iterator: Any, change: Callable[[int], int]) -> int | None:
    """Change the argument `steps_per_epoch` of the running `fit`.

    Return the old value, or None if `fit` has no such argument.
    """
    steps: int | None = getattr(epoch_iterator, "steps_per_epoch", None)
    if not steps:
        return None
    epoch_iterator.steps_per_epoch = max(1, change(steps))
    return steps


def backend_target() -> str:
    """Return the framework whose arrays the feed returns, for the backend of Keras."""
    backend = keras.backend.backend()
    if backend not in _TARGETS:
        raise FrameworkError(
            f"Keras runs on {backend!r}, which Forebay cannot feed. Set KERAS_BACKEND to one of {sorted(_TARGETS)}.",
            name=backend,
        )
    return _TARGETS[backend]


def _return_unchanged(iterator: Iterator[Any], *_: Any, **__: Any) -> Iterator[Any]:
    return iterator


def _send_one_by_one(iterator: Iterator[Any]) -> Iterator[Any]:
    from keras.src.backend.jax import trainer  # imports JAX, which only this backend needs

    return map(trainer._distribute_data, iterator)


def _keras_frames() -> Iterator[FrameType]:
    """Yield the stack frames of Keras code, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("keras."):
            yield frame
        frame = frame.f_back


def _explicit_keywords(frame: FrameType) -> Mapping[str, Any]:
    """Return the keyword arguments that the user passed to the method of this frame.

    They are in the frame of `error_handler`, the function with which Keras wraps each method to filter tracebacks.
    """
    wrapper = frame.f_back
    keywords = wrapper.f_locals.get("kwargs") if wrapper and wrapper.f_code.co_name == "error_handler" else None
    return keywords if isinstance(keywords, Mapping) else {}
