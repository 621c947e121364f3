"""Arrangers, which turn a batch into the tuple that Keras expects.

Keras expects `(x,)`, `(x, y)` or `(x, y, sample_weight)`. If rows are tuples, their parts are in this order already. If
rows are dicts, their fields have no order, so the user names the fields for each of the three roles.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import keras

from forebay.core.spec import Structure, Tree
from forebay.errors import PipelineError

__all__ = ["Arranger", "ClassWeights", "Fields", "make_arranger"]

Fields: TypeAlias = str | list[str] | tuple[str, ...] | dict[str, str] | None  # a dict maps input names to fields
Arranger: TypeAlias = Callable[[Tree], tuple[Any, ...]]


def make_arranger(structure: Structure | None, *, x: Fields, y: Fields, sample_weight: Fields) -> Arranger:
    """Return the function that makes Keras's tuple from a batch, without a copy.

    `structure` is that of a batch. It is None if a map on the device determines it; then the first batch shows the
    structure.
    """
    roles = {"x": x, "y": y, "sample_weight": sample_weight}
    return (
        _FirstBatchArranger(roles) if structure is None else _arranger_for(structure.unflatten(structure.paths), roles)
    )


class _FirstBatchArranger:
    """Chooses an arranger by the structure of the first batch, for all batches."""

    def __init__(self, fields_by_role: Mapping[str, Fields]) -> None:
        self._fields_by_role = fields_by_role
        self._arrange: Arranger | None = None

    def __call__(self, batch: Tree) -> tuple[Any, ...]:
        if self._arrange is None:
            self._arrange = _arranger_for(batch, self._fields_by_role)
        return self._arrange(batch)


def _arranger_for(example: Tree, fields_by_role: Mapping[str, Fields]) -> Arranger:
    """Return the arranger for batches with the structure of the example."""
    if isinstance(example, Mapping):
        return _arranger_by_name(list(example), fields_by_role)
    if any(fields is not None for fields in fields_by_role.values()):
        arguments = ", ".join(f"{role}={fields!r}" for role, fields in fields_by_role.items() if fields is not None)
        kind = type(example).__name__ if isinstance(example, tuple | list) else "single array"
        raise PipelineError(
            f"feed('keras', {arguments}): names need a pipeline of dicts, and a row of this pipeline is a {kind}. "
            "Leave the names out."
        )
    if not isinstance(example, tuple | list):
        return lambda batch: (batch,)
    if len(example) > 3:
        raise PipelineError(
            f"Keras takes at most (x, y, sample_weight), and a row of this pipeline has {len(example)} parts. Put "
            "several inputs into one part: from_arrays(((a, b), y)); or name the parts: "
            "from_arrays({...}).feed('keras', x=[...], y=...)."
        )
    return tuple


def _arranger_by_name(field_names: list[str], fields_by_role: Mapping[str, Fields]) -> Arranger:
    if fields_by_role["x"] is None:
        raise PipelineError(
            f"Keras needs to know which of the fields {field_names} is x and which is y. Pass "
            f"feed('keras', x={field_names[0]!r}, y=...)."
        )
    if fields_by_role["sample_weight"] is not None and fields_by_role["y"] is None:
        raise PipelineError("feed('keras', sample_weight=...) weighs targets, and y= names none. Name them too: y=...")
    pickers = [_make_picker(field_names, role, fields) for role, fields in fields_by_role.items() if fields is not None]
    return lambda batch: tuple(picker(batch) for picker in pickers)


def _make_picker(
    field_names: list[str], role: str, fields: str | list[str] | tuple[str, ...] | dict[str, str]
) -> Callable[[Tree], Any]:
    """Return the function that picks the fields of one role from a batch."""
    for field in [fields] if isinstance(fields, str) else fields.values() if isinstance(fields, dict) else fields:
        if field not in field_names:
            raise PipelineError(
                f"feed('keras', {role}={fields!r}): there is no field {field!r}. Choose from {field_names}."
            )
    if isinstance(fields, str):
        return lambda batch: batch[fields]
    if isinstance(fields, list):
        return lambda batch: {field: batch[field] for field in fields}
    if isinstance(fields, dict):
        return lambda batch: {name: batch[field] for name, field in fields.items()}
    return lambda batch: tuple(batch[field] for field in fields)


class ClassWeights:
    """Adds the weight of its class to each row, as `fit(class_weight=)` does with arrays.

    The computation runs on the device of the labels.
    """

    def __init__(self, weight_of_class: Mapping[int, float]) -> None:
        if not _is_class_mapping(weight_of_class):
            raise PipelineError(
                f"class_weight={weight_of_class!r} must be a dict of classes 0, 1, ... to weights. Pass, for example, "
                "{0: 1.0, 1: 5.0}."
            )
        classes = [int(number) for number in weight_of_class]
        self._unlisted_class = max(classes) + 1  # stands for all classes without a weight, which Keras weighs with 1
        weights = [weight_of_class.get(number, 1.0) for number in range(self._unlisted_class)]
        self._weights = keras.ops.convert_to_tensor([*weights, 1.0], dtype=keras.config.floatx())

    @staticmethod
    def check(parts: Sequence[Any]) -> None:
        """Raise PipelineError for a batch with sample weights or without one array of labels."""
        if len(parts) == 3:
            raise PipelineError(
                "fit(class_weight=) cannot be used with a feed that has sample weights. "
                "Multiply the sample weights by the class weights in the pipeline."
            )
        if len(parts) == 1 or isinstance(parts[1], Mapping | tuple | list):
            raise PipelineError(
                "fit(class_weight=) needs exactly one array of labels. Put a weight for each row into the pipeline "
                "instead: from_arrays((x, y, sample_weight))."
            )

    def __call__(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `(x, y, sample_weight)` for `(x, y)`."""
        self.check(parts)  # the only check if a map on the device determines the parts
        x, y = parts
        classes = _class_numbers(y)
        is_listed = keras.ops.logical_and(classes >= 0, classes < self._unlisted_class)
        return x, y, keras.ops.take(self._weights, keras.ops.where(is_listed, classes, self._unlisted_class))


def _is_class_mapping(weights: Any) -> bool:
    if not isinstance(weights, Mapping) or not weights:
        return False
    return all(isinstance(number, Real) and float(number) >= 0 for number in weights)


def _class_numbers(y: Any) -> Any:
    """Return the class of each row, for labels that are numbers or one-hot rows."""
    if len(y.shape) > 1 and y.shape[-1] != 1:
        return keras.ops.cast(keras.ops.argmax(y, axis=-1), "int32")
    flat = keras.ops.squeeze(y, axis=-1) if len(y.shape) > 1 else y
    rounded = keras.ops.round(flat) if "float" in keras.backend.standardize_dtype(flat.dtype) else flat
    return keras.ops.cast(rounded, "int32")
