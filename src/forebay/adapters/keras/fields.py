"""The arrangement of a batch as the tuple of x, y and sample_weight that Keras expects.

Keras takes `(x,)`, `(x, y)` or `(x, y, sample_weight)`. A pipeline of tuples has that order already. The fields of a
dict have no order, so the user names them.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import keras

from forebay.core.spec import Structure, Tree
from forebay.errors import PipelineError

__all__ = ["Arrange", "ClassWeights", "Fields", "make_arranger"]

Fields: TypeAlias = str | list[str] | tuple[str, ...] | dict[str, str] | None  # a dict maps input names to fields
Arrange: TypeAlias = Callable[[Tree], tuple[Any, ...]]


def make_arranger(structure: Structure | None, *, x: Fields, y: Fields, sample_weight: Fields) -> Arrange:
    """Return the function that makes Keras's tuple from a batch. It only moves references.

    Without a structure, the first batch decides the arrangement: the output of a device map is unknown until it runs.
    """
    named = {"x": x, "y": y, "sample_weight": sample_weight}
    return (
        _FirstBatchArranger(named) if structure is None else _arranger_for(structure.unflatten(structure.paths), named)
    )


class _FirstBatchArranger:
    """Chooses the arrangement from the first batch, and refuses names that do not fit it."""

    def __init__(self, named: Mapping[str, Fields]) -> None:
        self._named = named
        self._arrange: Arrange | None = None

    def __call__(self, batch: Tree) -> tuple[Any, ...]:
        if self._arrange is None:
            self._arrange = _arranger_for(batch, self._named)
        return self._arrange(batch)


def _arranger_for(example: Tree, named: Mapping[str, Fields]) -> Arrange:
    if isinstance(example, Mapping):
        return _arrange_by_name(list(example), named)
    if any(fields is not None for fields in named.values()):
        given = ", ".join(f"{role}={fields!r}" for role, fields in named.items() if fields is not None)
        kind = type(example).__name__ if isinstance(example, tuple | list) else "single array"
        raise PipelineError(
            f"feed('keras', {given}): names need a pipeline of dicts, and this pipeline returns a {kind}. Leave the "
            "names out."
        )
    if not isinstance(example, tuple | list):
        return lambda batch: (batch,)
    if len(example) > 3:
        raise PipelineError(
            f"Keras takes at most (x, y, sample_weight), and this pipeline returns {len(example)} parts. Put several "
            "inputs into one: from_arrays(((a, b), y)); or name them: from_arrays({...}).feed('keras', x=[...], y=...)."
        )
    return tuple


def _arrange_by_name(known: list[str], named: Mapping[str, Fields]) -> Arrange:
    if named["x"] is None:
        raise PipelineError(
            f"Keras needs to know which of the fields {known} is x and which is y. Pass "
            f"feed('keras', x={known[0]!r}, y=...)."
        )
    if named["sample_weight"] is not None and named["y"] is None:
        raise PipelineError("feed('keras', sample_weight=...) weighs targets, and there are none. Name them too: y=...")
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


class ClassWeights:
    """Adds a weight for each row by its class, as `fit(class_weight=)` does. It runs on the labels' device."""

    def __init__(self, weight_of_class: Mapping[int, float]) -> None:
        if not _is_class_mapping(weight_of_class):
            raise PipelineError(f"class_weight={weight_of_class!r} must be a dict of classes 0, 1, ... to weights.")
        classes = [int(number) for number in weight_of_class]
        self._unknown = max(classes) + 1  # classes that are not in the dict have weight 1, as in Keras
        weights = [weight_of_class.get(number, 1.0) for number in range(self._unknown)]
        self._weights = keras.ops.convert_to_tensor([*weights, 1.0], dtype=keras.config.floatx())

    @staticmethod
    def check(parts: Sequence[Any]) -> None:
        """Refuse batches without one array of labels, or with sample weights."""
        if len(parts) == 3:
            raise PipelineError(
                "fit(class_weight=) cannot be used with a feed that has sample weights. Multiply them in the pipeline."
            )
        if len(parts) == 1 or isinstance(parts[1], Mapping | tuple | list):
            raise PipelineError(
                "fit(class_weight=) needs exactly one array of labels. Put weights of rows into the pipeline instead: "
                "from_arrays((x, y, sample_weight))."
            )

    def __call__(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        self.check(parts)  # here, because the result of a device map was unknown until now
        x, y = parts
        classes = _class_numbers(y)
        known = keras.ops.logical_and(classes >= 0, classes < self._unknown)
        return x, y, keras.ops.take(self._weights, keras.ops.where(known, classes, self._unknown))


def _is_class_mapping(weights: Any) -> bool:
    if not isinstance(weights, Mapping) or not weights:
        return False
    return all(isinstance(number, Real) and float(number) >= 0 for number in weights)


def _class_numbers(y: Any) -> Any:
    if len(y.shape) > 1 and y.shape[-1] != 1:
        return keras.ops.cast(keras.ops.argmax(y, axis=-1), "int32")
    flat = keras.ops.squeeze(y, axis=-1) if len(y.shape) > 1 else y
    rounded = keras.ops.round(flat) if "float" in keras.backend.standardize_dtype(flat.dtype) else flat
    return keras.ops.cast(rounded, "int32")
