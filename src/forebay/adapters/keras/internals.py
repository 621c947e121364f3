"""Keras internals that Forebay uses: the adapter class, and the arguments of the running `fit`.

Keras does not pass the arguments of `fit` to a `DataAdapter`: it would silently ignore `class_weight=`, `batch_size=`
and others. Forebay reads them from the stack frames of that call, once per epoch. If Keras changes its frames,
`running_call` returns None and the feed logs a warning.
"""

import logging
import sys
import weakref
from collections.abc import Iterator, Mapping
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
        f"Keras {keras.__version__} has no DataAdapter where Forebay expects it. Use Keras 3.5 or later, or use "
        f"feed({keras.backend.backend()!r}) in a training loop.",
        name="keras",
    ) from error

__all__ = [
    "DataAdapter",
    "KerasCall",
    "is_building_model",
    "is_one_batch_ahead",
    "calling_epoch_iterator",
    "running_call",
    "set_num_batches",
    "skip_device_put",
]

_log = logging.getLogger("forebay.keras")
_VERBS = ("fit", "evaluate", "predict")


@dataclass(frozen=True, slots=True)
class KerasCall:
    """The running `fit`, `evaluate` or `predict`."""

    verb: str
    model: Any
    arguments: Mapping[str, Any]  # all arguments by name, including defaults
    written: Mapping[str, Any]  # only the keywords that the caller wrote
    owner: weakref.ref[Any] | None  # the calling EpochIterator; weak, because that object holds our iterators

    def role_of(self, feed: Any) -> str:
        """Return the role of the feed: "fit", "validation", or another verb."""
        return "validation" if self.verb == "fit" and self.arguments.get("x") is not feed else self.verb

    @property
    def validation_x(self) -> Any:
        data = self.arguments.get("validation_data")
        return data[0] if isinstance(data, tuple | list) and data else data


def running_call() -> KerasCall | None:
    """Return the innermost call of Keras's trainer on this thread, or None outside of one."""
    owner: weakref.ref[Any] | None = None
    for frame in _keras_frames():
        actor = frame.f_locals.get("self")
        if isinstance(actor, EpochIterator):
            owner = weakref.ref(actor)
        # With `use_cached_eval_dataset`, fit() called this evaluate(), so the user's arguments are those of fit().
        elif frame.f_code.co_name in _VERBS and not frame.f_locals.get("use_cached_eval_dataset"):
            return KerasCall(frame.f_code.co_name, actor, dict(frame.f_locals), _written_keywords(frame), owner)
    if owner is not None:
        _log.warning(
            "Forebay cannot read the arguments of fit() in Keras %s. If you pass class_weight, sample_weight, y, "
            "batch_size or shuffle together with a feed, Keras ignores them.",
            keras.__version__,
        )
    return None


def calling_epoch_iterator(function: str | None = None) -> Any:
    """Return the `EpochIterator` that called the current hook, if it did so from this function."""
    frame = sys._getframe(2)
    owner = frame.f_locals.get("self")
    if not isinstance(owner, EpochIterator) or function not in (None, frame.f_code.co_name):
        return None
    return owner


def is_building_model() -> bool:
    """Whether Keras takes a batch only to see its shapes."""
    return any(frame.f_code.co_name.endswith("_symbolic_build") for frame in _keras_frames())


def is_one_batch_ahead() -> bool:
    """Whether JAX's trainer fetches a batch ahead of the model, as it does on an accelerator."""
    return sys._getframe(2).f_code.co_name == "_one_batch_ahead_iterator"


def skip_device_put(epoch_iterator: Any) -> None:
    """Keep JAX's trainer from copying batches that are on its device already.

    It would call device_put for every array one batch ahead, which takes 0.1 ms of Python per step.
    """
    if hasattr(epoch_iterator, "_one_batch_ahead_iterator"):
        epoch_iterator._one_batch_ahead_iterator = _unchanged


def set_num_batches(epoch_iterator: Any, batches: int | None) -> None:
    """Set the number of batches of this epoch, if this version of Keras has the attribute.

    Keras asks for the number only once per call of `fit`. If a resumed epoch is shorter, Keras would warn that the data
    ran out.
    """
    if hasattr(epoch_iterator, "_num_batches"):
        epoch_iterator._num_batches = batches


def _unchanged(iterator: Iterator[Any], *_: Any, **__: Any) -> Iterator[Any]:
    return iterator


def _keras_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("keras."):
            yield frame
        frame = frame.f_back


def _written_keywords(frame: FrameType) -> Mapping[str, Any]:
    """Return the keywords that the caller wrote. Keras's traceback filter wraps each verb and holds them."""
    wrapper = frame.f_back
    keywords = wrapper.f_locals.get("kwargs") if wrapper and wrapper.f_code.co_name == "error_handler" else None
    return keywords if isinstance(keywords, Mapping) else {}
