"""Refuses arguments of `fit`, `evaluate` and `predict` that Keras would ignore for a feed."""

from typing import Any

from forebay.adapters.keras.internals import KerasCall
from forebay.errors import PipelineError

__all__ = ["refuse_ignored_arguments"]

_INSTEAD = {
    "y": "Put the targets into the pipeline: from_arrays((x, y)).",
    "sample_weight": "Put the weights into the pipeline: from_arrays((x, y, sample_weight)).",
    "batch_size": "Set the rows of a batch in the pipeline: .batch(rows).",
    "shuffle": "Set the order of rows in the pipeline: .shuffle(seed=0) before .batch(), or no .shuffle().",
    "validation_split": "Make two feeds, and pass the second one as validation_data.",
    "validation_batch_size": "Set the rows of a batch in the pipeline of the validation feed: .batch(rows).",
}


def refuse_ignored_arguments(call: KerasCall, feed: Any) -> None:
    """Raise an error for the first argument that Keras would ignore for this feed.

    `shuffle` counts only if the caller wrote it: its default is True.
    """
    role = call.role_of(feed)
    if role == "validation":
        _refuse_validation_arguments(call)
        return
    for name in ("y", "sample_weight", "batch_size", "validation_split"):
        if _is_given(call.arguments.get(name)):
            _refuse(call.verb, name, call.arguments[name])
    if "shuffle" in call.written:
        _refuse(call.verb, "shuffle", call.written["shuffle"])
    if role == "fit" and call.validation_x is feed:
        raise PipelineError(
            "fit() got the same feed as training and as validation data. A feed has one position, so each use would "
            "move the other. Make a second one: pipeline.feed('keras') costs little."
        )


def _is_given(value: Any) -> bool:
    """Whether a value differs from Keras's defaults, None and 0.0. An array is never compared."""
    return value is not None and not (isinstance(value, float) and value == 0.0)


def _refuse_validation_arguments(call: KerasCall) -> None:
    data = call.arguments.get("validation_data")
    parts = data if isinstance(data, tuple | list) else (data,)
    for name, part in zip(("y", "sample_weight"), parts[1:], strict=False):
        if part is not None:
            _refuse("fit", f"validation_data=(feed, {name})", part, _INSTEAD[name])
    if call.arguments.get("validation_batch_size") is not None:
        _refuse("fit", "validation_batch_size", call.arguments["validation_batch_size"])


def _refuse(verb: str, name: str, value: Any, instead: str | None = None) -> None:
    shown = f"{name}={value!r}" if isinstance(value, str | int | float) else name
    raise PipelineError(
        f"{verb}() got {shown} together with a feed, and Keras would ignore it. {instead or _INSTEAD[name]} "
        "Leave the argument out."
    )
