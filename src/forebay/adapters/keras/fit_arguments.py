"""Arguments of `fit`, `evaluate` and `predict` that a feed cannot serve: refused, since Keras would ignore them."""

from typing import Any

from forebay.adapters.keras.internals import KerasCall
from forebay.errors import PipelineError

__all__ = ["refuse_ignored"]

_WAYS_OUT = {
    "y": "put the targets into the pipeline: from_arrays((x, y)).",
    "sample_weight": "put the weights into the pipeline: from_arrays((x, y, sample_weight)).",
    "batch_size": "the pipeline says how many rows a batch has: .batch(rows).",
    "shuffle": "the pipeline says in which order rows come: .shuffle(seed=0) before .batch(), or no .shuffle() at all.",
    "validation_split": "make two feeds, and pass the second one as validation_data.",
    "validation_batch_size": "the validation feed's pipeline says how many rows a batch has: .batch(rows).",
}


def refuse_ignored(call: KerasCall, feed: Any) -> None:
    """Raise on the first argument that Keras would ignore beside this feed.

    `shuffle` counts only where it is written out: its default is True, and says nothing about what is wanted.
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
            "fit() got one feed as training and as validation data: a feed has one position, and each would move the "
            "other's. Make a second one: pipeline.feed('keras') costs little."
        )


def _is_given(value: Any) -> bool:
    """None and 0.0 are Keras's defaults; an array must not be asked whether it equals either."""
    return value is not None and not (isinstance(value, float) and value == 0.0)


def _refuse_validation_arguments(call: KerasCall) -> None:
    data = call.arguments.get("validation_data")
    parts = data if isinstance(data, tuple | list) else (data,)
    for name, part in zip(("y", "sample_weight"), parts[1:], strict=False):
        if part is not None:
            _refuse("fit", f"validation_data=(feed, {name})", part, _WAYS_OUT[name])
    if call.arguments.get("validation_batch_size") is not None:
        _refuse("fit", "validation_batch_size", call.arguments["validation_batch_size"])


def _refuse(verb: str, name: str, value: Any, way_out: str | None = None) -> None:
    shown = f"{name}={value!r}" if isinstance(value, str | int | float) else name
    raise PipelineError(
        f"{verb}() got {shown} beside a feed, and Keras would ignore it: {way_out or _WAYS_OUT[name]} "
        "Leave the argument out."
    )
