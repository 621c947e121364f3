"""Validation of the arguments of `fit`, `evaluate` and `predict` with a feed.

Keras silently ignores some arguments if its data is a feed. Forebay raises an error for these arguments. Others make
`fit` start at a later epoch, but do not move the feed. For these, Forebay moves the feed too, or warns.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import keras

from forebay.adapters.keras.backup import FeedBackup
from forebay.adapters.keras.internals import KerasCall
from forebay.core.spec import Structure
from forebay.errors import PipelineError

__all__ = ["check_call", "first_epoch", "warn_of_plain_backup"]

_ADVICE = {  # argument -> what the user should do instead
    "y": "Put the targets into the pipeline: from_arrays((x, y)).",
    "sample_weight": "Put the weights into the pipeline: from_arrays((x, y, sample_weight)).",
    "batch_size": "Set the batch size in the pipeline: .batch(rows).",
    "shuffle": "Set the order of rows in the pipeline: .shuffle(seed=0) before .batch(), or no .shuffle().",
    # This is for calls with validation_data. Without it, Keras fails earlier, because it asks the feed for `__array__`.
    "validation_split": "Keras uses validation_data instead.",
    "validation_batch_size": "Set the batch size in the pipeline of the validation feed: .batch(rows).",
}


def check_call(
    call: KerasCall, feed: Any, structure: Structure | None, parts: Sequence[Any] | None, *, is_endless: bool
) -> None:
    """Raise an error for a call that would fail, or do something else than intended.

    `structure` is the structure of a batch, and `parts` is the tuple that Keras gets from a batch. Both are None if
    they are unknown before the first batch. `is_endless` says whether the epochs of the feed never end.
    """
    _refuse_ignored_arguments(call, feed)
    if is_endless:
        _refuse_endless_epochs(call, feed)
    if structure is not None and parts is not None:
        _refuse_missing_targets(call, feed, structure, parts)


def _refuse_ignored_arguments(call: KerasCall, feed: Any) -> None:
    """Raise an error for the first argument that Keras would ignore for this feed.

    The default of `shuffle` is True, so `shuffle` is refused only if the caller passed it as a keyword. Also raise an
    error if `fit` got this feed both as training data and as validation data.
    """
    role = call.role_of(feed)
    if role == "validation":
        _refuse_validation_arguments(call)
        return
    for name in ("y", "sample_weight", "batch_size", "validation_split"):
        if _differs_from_default(call.arguments.get(name)):
            _refuse(call.method, name, call.arguments[name])
    if "shuffle" in call.explicit_keywords:
        _refuse(call.method, "shuffle", call.explicit_keywords["shuffle"])
    if role == "fit" and call.validation_x is feed:
        raise PipelineError(
            "fit() got the same feed as training data and as validation data. A feed has only one position, "
            "and both uses would move it. Make a second feed: pipeline.feed('keras')."
        )


def _refuse_endless_epochs(call: KerasCall, feed: Any) -> None:
    """Raise an error for a call that would never end: no argument limits its steps.

    A callback may end the call, so a call with callbacks is not refused.
    """
    added_by_keras = (keras.callbacks.History, keras.callbacks.ProgbarLogger)
    if not all(isinstance(callback, added_by_keras) for callback in _callbacks_of(call)):
        return
    role = call.role_of(feed)
    argument = {"fit": "steps_per_epoch", "validation": "validation_steps"}.get(role, "steps")
    if call.arguments.get(argument) is None:
        raise PipelineError(
            f"{call.method}() would never end, because the pipeline repeats its rows without a count. Pass "
            f"{argument}=..., or leave out repeat(): each epoch of fit() takes the next epoch of the feed. repeat(n) "
            "makes one epoch of n passes."
        )


def _refuse_missing_targets(call: KerasCall, feed: Any, structure: Structure, parts: Sequence[Any]) -> None:
    """Raise an error if the loss of the model needs targets, and batches have none.

    `parts` is the tuple that Keras gets from a batch. A model needs no targets if it computes its loss with `add_loss`,
    or in methods of its own, such as `compute_loss`.
    """
    if len(parts) > 1 or call.method == "predict" or getattr(call.model, "loss", None) is None:
        return
    kind = "train" if call.role_of(feed) == "fit" else "test"
    if any(_replaces(call.model, name) for name in (f"{kind}_step", f"make_{kind}_function", "compute_loss")):
        return
    if structure.kind is dict:
        advice = f"Name a field of {list(structure.keys)}: feed('keras', x=..., y=...)."
    else:
        advice = "Put the targets into the pipeline: from_arrays((x, y))."
    loss = _name_of(call.model.loss)
    raise PipelineError(f"{call.method}() needs targets for the loss {loss}, and the feed has none. {advice}")


def _replaces(model: Any, name: str) -> bool:
    """Return whether a model, or its class, replaces the method `name` of `keras.Model`."""
    return name in vars(model) or getattr(type(model), name, None) is not getattr(keras.Model, name, None)


def first_epoch(call: KerasCall) -> int:
    """Return the epoch at which an unused feed begins: `initial_epoch` of `fit`.

    With `steps_per_epoch`, the epochs of `fit` and of the feed differ, so warn and return 0.
    """
    epoch = call.arguments.get("initial_epoch") or 0
    if epoch and call.arguments.get("steps_per_epoch") is not None:
        warnings.warn(
            f"fit() begins at initial_epoch={epoch}, but the feed begins at its first row: with steps_per_epoch, the "
            "epochs of fit() and of the feed differ. Call feed.load_state_dict(state). If the feed shall begin at its "
            "first row, call feed.set_epoch(0).",
            stacklevel=2,
        )
        return 0
    return int(epoch)


def warn_of_plain_backup(call: KerasCall) -> bool:
    """Warn if `fit` got Keras's own callback `BackupAndRestore`. Return whether it warned."""
    for callback in _callbacks_of(call):
        if isinstance(callback, keras.callbacks.BackupAndRestore) and not isinstance(callback, FeedBackup):
            warnings.warn(
                "BackupAndRestore does not restore the position of the feed, so rows repeat after a resume. Pass the "
                "callback feed.backup_and_restore('folder'), where feed is the first argument of fit().",
                stacklevel=2,
            )
            return True
    return False


def _callbacks_of(call: KerasCall) -> list[Any]:
    """Return the callbacks of a call, including those that Keras adds to its `CallbackList`."""
    callbacks = call.arguments.get("callbacks")
    return [] if callbacks is None else list(keras.tree.flatten(getattr(callbacks, "callbacks", callbacks)))


def _name_of(loss: Any) -> str:
    """Return the name of a loss, or the type of the container of several losses."""
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def _differs_from_default(value: Any) -> bool:
    """Return whether a value is neither None nor 0.0, the defaults of Keras.

    Compare only floats, because `array == 0.0` returns an array.
    """
    return value is not None and not (isinstance(value, float) and value == 0.0)


def _refuse_validation_arguments(call: KerasCall) -> None:
    data = call.arguments.get("validation_data")
    parts = data if isinstance(data, tuple | list) else (data,)
    for name, part in zip(("y", "sample_weight"), parts[1:], strict=False):
        if part is not None:
            _refuse("fit", f"validation_data=(feed, {name})", part, f"{_ADVICE[name]} Pass validation_data=feed.")
    if call.arguments.get("validation_batch_size") is not None:
        _refuse("fit", "validation_batch_size", call.arguments["validation_batch_size"])


def _refuse(method: str, name: str, value: Any, advice: str | None = None) -> None:
    argument = f"{name}={value!r}" if isinstance(value, str | int | float) else name
    advice = advice or f"{_ADVICE[name]} Leave the argument out."
    raise PipelineError(f"{method}() got {argument} together with a feed, and Keras would ignore it. {advice}")
