"""Which part of a batch is x, which y, which the sample weights: trees as pipelines have them to tuples as Keras has.

Keras takes `(x,)`, `(x, y)` or `(x, y, sample_weight)`. A tuple pipeline is taken as it stands; the fields of a dict
have no order that means anything, so there they are named.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import keras

from forebay.core.spec import Structure, Tree
from forebay.errors import PipelineError

__all__ = ["Arrange", "ClassWeights", "Fields", "arranger"]

Fields: TypeAlias = str | list[str] | tuple[str, ...] | dict[str, str] | None  # a dict: input's name to field
Arrange: TypeAlias = Callable[[Tree], tuple[Any, ...]]


def arranger(structure: Structure | None, *, x: Fields, y: Fields, sample_weight: Fields) -> Arrange:
    """The function that makes Keras's tuple of a batch; it only moves references.

    Without a structure, where only running a map on the device tells what it returns, the first batch decides.
    """
    named = {"x": x, "y": y, "sample_weight": sample_weight}
    return _ByFirstBatch(named) if structure is None else _arranger_of(structure.unflatten(structure.paths), named)


class _ByFirstBatch:
    """Arranges batches as the first of them is arranged; names that do not fit it are refused there."""

    def __init__(self, named: Mapping[str, Fields]) -> None:
        self._named = named
        self._arrange: Arrange | None = None

    def __call__(self, batch: Tree) -> tuple[Any, ...]:
        if self._arrange is None:
            self._arrange = _arranger_of(batch, self._named)
        return self._arrange(batch)


def _arranger_of(example: Tree, named: Mapping[str, Fields]) -> Arrange:
    if isinstance(example, Mapping):
        return _by_name(list(example), named)
    if any(fields is not None for fields in named.values()):
        given = ", ".join(f"{role}={fields!r}" for role, fields in named.items() if fields is not None)
        raise PipelineError(
            f"feed('keras', {given}): names are for pipelines of dicts, and this one gives a "
            f"{type(example).__name__ if isinstance(example, tuple | list) else 'lone array'}. Leave the names out."
        )
    if not isinstance(example, tuple | list):
        return lambda batch: (batch,)
    if len(example) > 3:
        raise PipelineError(
            f"Keras takes (x, y, sample_weight) at most, and this pipeline gives {len(example)} parts. Put several "
            "inputs into one: from_arrays(((a, b), y)); or name them: from_arrays({...}).feed('keras', x=[...], y=...)."
        )
    return tuple


class ClassWeights:
    """Weighs each row by its class, as `fit(class_weight=)` asks; in Keras's ops, so it runs where the labels are."""

    def __init__(self, weight_of_class: Mapping[int, float]) -> None:
        if not _maps_classes(weight_of_class):
            raise PipelineError(f"class_weight={weight_of_class!r} must be a dict of classes 0, 1, ... to weights.")
        classes = [int(number) for number in weight_of_class]
        self._unknown = max(classes) + 1  # classes that are not named weigh 1, as everywhere in Keras
        weights = [weight_of_class.get(number, 1.0) for number in range(self._unknown)]
        self._weights = keras.ops.convert_to_tensor([*weights, 1.0], dtype=keras.config.floatx())

    @staticmethod
    def check(parts: Sequence[Any]) -> None:
        """Refuse batches that cannot be weighed by class."""
        if len(parts) == 3:
            raise PipelineError(
                "fit(class_weight=) cannot be used with a feed that has sample weights: fold one into the other."
            )
        if len(parts) == 1 or isinstance(parts[1], Mapping | tuple | list):
            raise PipelineError(
                "fit(class_weight=) needs one array of labels beside x: put weights of rows into the pipeline "
                "instead, from_arrays((x, y, sample_weight))."
            )

    def __call__(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        self.check(parts)  # what a map on the device returns is seen here first
        x, y = parts
        classes = _classes(y)
        known = keras.ops.logical_and(classes >= 0, classes < self._unknown)
        return x, y, keras.ops.take(self._weights, keras.ops.where(known, classes, self._unknown))


def _maps_classes(weights: Any) -> bool:
    if not isinstance(weights, Mapping) or not weights:
        return False
    return all(isinstance(number, Real) and float(number) >= 0 for number in weights)


def _classes(y: Any) -> Any:
    if len(y.shape) > 1 and y.shape[-1] != 1:
        return keras.ops.cast(keras.ops.argmax(y, axis=-1), "int32")
    flat = keras.ops.squeeze(y, axis=-1) if len(y.shape) > 1 else y
    rounded = keras.ops.round(flat) if "float" in keras.backend.standardize_dtype(flat.dtype) else flat
    return keras.ops.cast(rounded, "int32")


def _by_name(known: list[str], named: Mapping[str, Fields]) -> Arrange:
    if named["x"] is None:
        raise PipelineError(
            f"Keras must be told which of the fields {known} is x and which is y: feed('keras', x={known[0]!r}, y=...)."
        )
    if named["sample_weight"] is not None and named["y"] is None:
        raise PipelineError("feed('keras', sample_weight=...) weighs targets, and there are none: name them too, y=...")
    picks = [_picker(known, role, fields) for role, fields in named.items() if fields is not None]
    return lambda batch: tuple(pick(batch) for pick in picks)


def _picker(
    known: list[str], role: str, fields: str | list[str] | tuple[str, ...] | dict[str, str]
) -> Callable[[Tree], Any]:
    for field in [fields] if isinstance(fields, str) else fields.values() if isinstance(fields, dict) else fields:
        if field not in known:
            raise PipelineError(f"feed('keras', {role}={fields!r}): there is no field {field!r}. Choose from {known}.")
    if isinstance(fields, str):
        return lambda batch: batch[fields]
    if isinstance(fields, list):
        return lambda batch: {field: batch[field] for field in fields}
    if isinstance(fields, dict):
        return lambda batch: {name: batch[field] for name, field in fields.items()}
    return lambda batch: tuple(batch[field] for field in fields)
