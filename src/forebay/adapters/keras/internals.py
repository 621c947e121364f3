"""What Forebay knows about Keras's inside: the adapter class, and what the running `fit` was given.

Keras takes a `DataAdapter` as it is and tells it nothing: `class_weight=`, `batch_size=` and the rest of a call would
be ignored without a word. They stand in the stack frames of that call, so they are read there, once an epoch. Should
Keras move them, nothing breaks: `running_call` gives None and the feed says so in the log.
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
        f"cannot feed 'keras': Keras {keras.__version__} keeps its DataAdapter elsewhere than the versions Forebay "
        f"knows. Use a Keras from 3.5 on, or feed({keras.backend.backend()!r}) in a loop of your own.",
        name="keras",
    ) from error

__all__ = [
    "DataAdapter",
    "KerasCall",
    "building_model",
    "called_one_batch_ahead",
    "calling_epoch_iterator",
    "running_call",
    "set_num_batches",
    "take_as_they_are",
]

_log = logging.getLogger("forebay.keras")
_VERBS = ("fit", "evaluate", "predict")


@dataclass(frozen=True, slots=True)
class KerasCall:
    """The `fit`, `evaluate` or `predict` that is asking for batches."""

    verb: str
    model: Any
    arguments: Mapping[str, Any]  # by name, the defaults too
    written: Mapping[str, Any]  # only what the caller wrote, by keyword
    owner: weakref.ref[Any] | None  # the EpochIterator that asks, weakly: it keeps what it gets

    def role_of(self, feed: Any) -> str:
        """What the feed is in this call: `fit` data, its `validation` data, or the data of another verb."""
        return "validation" if self.verb == "fit" and self.arguments.get("x") is not feed else self.verb

    @property
    def validation_x(self) -> Any:
        data = self.arguments.get("validation_data")
        return data[0] if isinstance(data, tuple | list) and data else data


def running_call() -> KerasCall | None:
    """The innermost call of Keras's trainer on this thread, or None outside of one."""
    owner: weakref.ref[Any] | None = None
    for frame in _keras_frames():
        actor = frame.f_locals.get("self")
        if isinstance(actor, EpochIterator):
            owner = weakref.ref(actor)
        # The evaluation that fit() runs each epoch uses what fit() made for it: fit() has the arguments.
        elif frame.f_code.co_name in _VERBS and not frame.f_locals.get("use_cached_eval_dataset"):
            return KerasCall(frame.f_code.co_name, actor, dict(frame.f_locals), _written(frame), owner)
    if owner is not None:
        _log.warning(
            "cannot see what fit() was given: Keras %s is built differently from the versions Forebay knows. If you "
            "pass class_weight, sample_weight, y, batch_size or shuffle beside a feed, they are ignored.",
            keras.__version__,
        )
    return None


def calling_epoch_iterator(function: str | None = None) -> Any:
    """The `EpochIterator` that called the hook we are in, if it did so in that function of its own."""
    frame = sys._getframe(2)
    owner = frame.f_locals.get("self")
    if not isinstance(owner, EpochIterator) or function not in (None, frame.f_code.co_name):
        return None
    return owner


def building_model() -> bool:
    """Whether Keras only wants to know what a batch looks like."""
    return any(frame.f_code.co_name.endswith("_symbolic_build") for frame in _keras_frames())


def called_one_batch_ahead() -> bool:
    """Whether the `next()` we are in is of JAX's trainer, on an accelerator, fetching the batch after the model's."""
    return sys._getframe(2).f_code.co_name == "_one_batch_ahead_iterator"


def take_as_they_are(epoch_iterator: Any) -> None:
    """Tell JAX's trainer that batches are on its device already.

    It would put every array where it is once more, a batch ahead: 0.1 ms of Python a step, for nothing.
    """
    if hasattr(epoch_iterator, "_one_batch_ahead_iterator"):
        epoch_iterator._one_batch_ahead_iterator = _as_it_is


def set_num_batches(epoch_iterator: Any, batches: int | None) -> None:
    """Tell Keras how many batches this epoch has, where it can be told.

    It asks only once a call, and warns that data ran out when a resumed epoch is shorter than the others.
    """
    if hasattr(epoch_iterator, "_num_batches"):
        epoch_iterator._num_batches = batches


def _as_it_is(iterator: Iterator[Any], *_: Any, **__: Any) -> Iterator[Any]:
    return iterator


def _keras_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("keras."):
            yield frame
        frame = frame.f_back


def _written(frame: FrameType) -> Mapping[str, Any]:
    """Keras's traceback filter wraps each verb and holds the keywords as they were written."""
    wrapper = frame.f_back
    keywords = wrapper.f_locals.get("kwargs") if wrapper and wrapper.f_code.co_name == "error_handler" else None
    return keywords if isinstance(keywords, Mapping) else {}
