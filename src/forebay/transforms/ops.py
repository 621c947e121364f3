"""Transforms of a batch: the user's maps, and the built-in cast, scale and one_hot.

A transform receives the leaves of a batch as a list and returns new leaves. A `Map` wraps a function of the user. The
planner runs `cast`, `scale` and `one_hot` on the host or on the device, so that fewer bytes cross to the device.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from forebay.core.decision import function_name
from forebay.core.ragged import Ragged, map_values
from forebay.core.skipped_rows import SkippedRow
from forebay.core.spec import Structure, Tree, flatten
from forebay.errors import PipelineError, SpecError, TransformError
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.padding import RowList, apply_to_each_row, pad_rows
from forebay.transforms.random_keys import make_rng, row_generators
from forebay.transforms.row_errors import map_error_notes, replace_failed_rows

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = ["Cast", "Map", "OneHot", "Scale", "Transform", "apply_all", "values_per_leaf", "cast", "one_hot", "scale"]

Leaves = list[Any]


class Transform(Protocol):
    """An operation on the leaves of a batch."""

    @property
    def where(self) -> str:
        """Where the transform runs: "thread", "process", "ray", "device", or "either" if the planner decides."""
        ...

    def apply(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        """Return new leaves and their structure. `context` seeds the random numbers of maps."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Map:
    """A user function, called with a batch or with a single row."""

    function: Callable[..., Tree]
    where: str
    by_row: bool  # whether the function receives single rows
    takes_rng: bool  # whether the function has a parameter `rng`
    seed: int
    pad: Any = None  # how to combine output rows of different shapes; see `pad_rows`
    # Structure of the output, which all later outputs must match. None until Forebay has called the function with
    # sample rows, which it reads to infer specs.
    structure: Structure | None = None
    workers: int | None = None  # worker processes or Ray workers; None: Forebay chooses the number
    max_errors: float | None = None  # largest share of rows that may fail; None: an error ends the feed
    # Number of the transforms before `cache()`. It is added to the index of this transform, which seeds the random
    # numbers. So these numbers are the same as without a cache.
    cached_before: int = 0

    @classmethod
    def of(
        cls,
        function: Callable[..., Tree],
        *,
        where: str,
        by_row: bool,
        seed: int,
        workers: int | None = None,
        max_errors: float | None = None,
    ) -> "Map":
        """Validate the options of `Pipeline.map` and build the transform."""
        if where not in ("thread", "process", "ray", "device"):
            raise PipelineError(f"map(where={where!r}) is unknown. Choose 'thread', 'process', 'ray' or 'device'.")
        if workers is not None and where not in ("process", "ray"):
            raise PipelineError(
                f"map(where={where!r}) has no workers, but got workers={workers}. Use 'process' or 'ray'."
            )
        return cls(function, where, by_row, _takes_rng(function), seed, workers=workers, max_errors=max_errors)

    @property
    def draws_by_row(self) -> bool:
        """Whether each row has its own random numbers."""
        return self.takes_rng and self.by_row

    def apply(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        if not self.by_row:
            rng = make_rng(self.seed, self._seeding(context).batch_numbers) if self.takes_rng else None
            output_structure, output = self._flatten(self._call(structure.unflatten(leaves), rng), self.structure)
            return self._validate_length(output, output_structure, len(leaves[0]))
        return self._apply_to_rows(leaves, structure, context)

    def _apply_to_rows(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        row_structure, rows, first_error = self.structure, list[Any](), None
        rngs = row_generators(self.seed, self._seeding(context)) if self.takes_rng else repeat(None, len(leaves[0]))
        for row, rng in zip(zip(*leaves, strict=True), rngs, strict=True):
            try:
                tree = self._call(structure.unflatten(row), rng)
            except Exception as error:
                if self.max_errors is None or isinstance(error, MemoryError):
                    raise
                context.skipped.append(SkippedRow.of(len(rows), context.transform, error))
                first_error = error if first_error is None else first_error
                rows.append(None)
                continue
            row_structure, output = self._flatten(tree, row_structure)
            rows.append(output)
        good_rows = rows if first_error is None else replace_failed_rows(rows, str(self), first_error)
        first_error = None  # its traceback refers to this frame, and the cycle would keep the batch alive
        assert row_structure is not None  # each batch has a row; `replace_failed_rows` raises if all rows failed
        return pad_rows(good_rows, row_structure.paths, self.pad), row_structure

    def _seeding(self, context: BatchContext) -> BatchContext:
        return context.for_transform(context.transform + self.cached_before)

    def _flatten(self, tree: Tree, expected: Structure | None) -> tuple[Structure, Leaves]:
        """Return the structure and the leaves of an output.

        Raise TransformError if the output is None or does not match the expected structure.
        """
        if tree is None:
            raise TransformError(f"{self} returned None. Return the transformed batch or row from the function.")
        if expected is None:
            leaves, structure = flatten(tree)
            return structure, leaves
        try:
            return expected, expected.flatten_like(tree)
        except SpecError as error:
            raise TransformError(
                f"{self} returned a different tree than before: {error} Return the same fields for every batch."
            ) from None

    def _call(self, tree: Tree, rng: "np.random.Generator | None") -> Tree:
        return self.function(tree) if rng is None else self.function(tree, rng=rng)

    def _validate_length(self, leaves: Leaves, structure: Structure, rows: int) -> tuple[Leaves, Structure]:
        """Return the leaves as arrays. Raise TransformError for a wrong number of rows."""
        arrays = [leaf.checked() if isinstance(leaf, Ragged) else np.asarray(leaf) for leaf in leaves]
        for array, name in zip(arrays, structure.paths, strict=True):
            if array.ndim == 0 or len(array) != rows:
                got = "a single value" if array.ndim == 0 else f"{len(array)} rows"
                raise TransformError(
                    f"{self} returned {got} in {name!r} for a batch of {rows} rows. Return one value for each row."
                )
        return arrays, structure

    def __str__(self) -> str:
        return f"map({function_name(self.function)}{', rows' if self.by_row else ''})"


@dataclass(frozen=True, slots=True)
class Cast:
    """Converts fields to other dtypes."""

    fields: Mapping[str, np.dtype[Any]] | np.dtype[Any]  # dtype of each named field, or of all fields
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        dtypes = values_per_leaf(self.fields, structure, self)
        converted = [
            leaf if dtype is None else leaf.astype(dtype, copy=False)
            for leaf, dtype in zip(leaves, dtypes, strict=True)
        ]
        return converted, structure

    def __str__(self) -> str:
        return f"cast({_format_fields(self.fields)})"


@dataclass(frozen=True, slots=True)
class Scale:
    """Computes field * factor + offset with numbers of type `dtype`."""

    fields: Mapping[str, float] | float  # factor of each named field, or of all fields
    offset: float
    dtype: np.dtype[Any]
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        factors = values_per_leaf(self.fields, structure, self)
        scaled = [
            leaf if factor is None else map_values(self._scale, leaf, factor)
            for leaf, factor in zip(leaves, factors, strict=True)
        ]
        return scaled, structure

    def _scale(self, leaf: Any, factor: float) -> Any:
        scaled = np.multiply(leaf, self.dtype.type(factor), dtype=self.dtype, casting="unsafe")
        return np.add(scaled, self.dtype.type(self.offset), out=scaled) if self.offset else scaled

    def __str__(self) -> str:
        return f"scale({_format_fields(self.fields)}{f', offset={self.offset}' if self.offset else ''})"


@dataclass(frozen=True, slots=True)
class OneHot:
    """Converts class numbers to one-hot rows."""

    fields: Mapping[str, int] | int  # number of classes of each named field, or of all fields
    dtype: np.dtype[Any]
    where: str = "either"

    def apply(self, leaves: Leaves, structure: Structure, context: BatchContext) -> tuple[Leaves, Structure]:
        classes = values_per_leaf(self.fields, structure, self)
        encoded = [
            leaf if count is None else map_values(self._encode, leaf, count, name)
            for leaf, count, name in zip(leaves, classes, structure.paths, strict=True)
        ]
        return encoded, structure

    def _encode(self, leaf: Any, classes: int, name: str) -> Any:
        if leaf.dtype.kind not in "iu":
            raise TransformError(f"one_hot needs integers, but {name!r} is {leaf.dtype}. Convert it to integers first.")
        outside = (leaf < 0) | (leaf >= classes)
        if outside.any():
            raise TransformError(
                f"one_hot({classes}): {name!r} contains {leaf[outside].flat[0]}, outside 0..{classes - 1}. "
                "Pass a larger number of classes, or correct the values."
            )
        return (leaf[..., None] == np.arange(classes)).astype(self.dtype)

    def __str__(self) -> str:
        return f"one_hot({_format_fields(self.fields)})"


def cast(fields: Any) -> Cast:
    """Return a transform that converts fields to other dtypes.

    Args:
        fields: The dtype of all fields, as in `map(fb.cast("float32"))`, or a dict with the dtypes of some fields, as
            in `map(fb.cast({"image": "float32"}))`.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> next(fb.from_arrays(np.array([1.5, 2.5])).batch(2).map(fb.cast("float32")).feed("numpy")).dtype
        dtype('float32')
    """
    if isinstance(fields, Mapping):
        return Cast({str(name): _as_dtype(dtype) for name, dtype in fields.items()})
    return Cast(_as_dtype(fields))


def scale(fields: Mapping[str, float] | float, *, offset: float = 0.0, dtype: "DTypeLike" = "float32") -> Scale:
    """Return a transform that multiplies fields by a factor, then adds an offset.

    `map(fb.scale({"image": 1 / 255}))` converts bytes to floats between 0 and 1.

    Args:
        fields: The factor of all fields, or a dict with the factors of some fields.
        offset: The number to add after the multiplication.
        dtype: The dtype of the computation and of the result.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images = fb.from_arrays(np.array([0, 51, 255], np.uint8))
        >>> next(images.batch(3).map(fb.scale(2 / 255, offset=-1)).feed("numpy")).round(2).tolist()
        [-1.0, -0.6000000238418579, 1.0]
    """
    return Scale(_convert_keys_to_str(fields), offset, _as_dtype(dtype))


def one_hot(fields: Mapping[str, int] | int, *, dtype: "DTypeLike" = "float32") -> OneHot:
    """Return a transform that converts class numbers to one-hot rows.

    `map(fb.one_hot({"label": 10}))` expects class numbers from 0 to 9.

    Args:
        fields: The number of classes of all fields, or a dict with the numbers of classes of some fields.
        dtype: The dtype of the result.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> next(fb.from_arrays(np.array([2, 0])).batch(2).map(fb.one_hot(3)).feed("numpy")).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    return OneHot(_convert_keys_to_str(fields), _as_dtype(dtype))


def apply_all(
    transforms: Sequence[Transform], leaves: Leaves, structure: Structure, context: BatchContext, *, first: int = 0
) -> tuple[Leaves, Structure]:
    """Apply transforms one after the other, and return the leaves and their structure.

    `first` is the index of the first transform in the pipeline. The index of a transform is part of its random seed.
    """
    for index, transform in enumerate(transforms, first):
        try:
            apply = partial(transform.apply, structure=structure, context=context.for_transform(index))
            # Rows of different shapes do not form a batch. A transform of batches gets them as batches of one row.
            gets_single_rows = isinstance(leaves[0], RowList) and not (isinstance(transform, Map) and transform.by_row)
            leaves, structure = apply_to_each_row(apply, leaves) if gets_single_rows else apply(leaves)
        except Exception as error:
            fields = f", which receives {', '.join(structure.paths)}" if isinstance(error, KeyError) else ""
            error.add_note(f"in {transform}{fields}")
            for note in map_error_notes(error):
                error.add_note(note)
            raise
    return leaves, structure


def values_per_leaf(fields: Mapping[str, Any] | Any, structure: Structure, transform: Any) -> list[Any]:
    """Return the value of `fields` for each leaf; None means that the leaf stays unchanged."""
    if not isinstance(fields, Mapping):
        return [fields] * len(structure.paths)
    unknown = [name for name in fields if name not in structure.paths]
    if unknown:
        known = ", ".join(map(repr, structure.paths))
        raise SpecError(f"{transform} names {unknown[0]!r}, but the fields are {known}. Correct the name.")
    return [fields.get(name) for name in structure.paths]


def _takes_rng(function: Callable[..., Any]) -> bool:
    """Return whether the function has a parameter `rng`."""
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False


def _as_dtype(name: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        raise SpecError(f"{name!r} is not a dtype. Pass for example 'float32'.") from None
    return dtype


def _convert_keys_to_str(fields: Mapping[str, Any] | Any) -> Any:
    return {str(name): value for name, value in fields.items()} if isinstance(fields, Mapping) else fields


def _format_fields(fields: Mapping[str, Any] | Any) -> str:
    if isinstance(fields, Mapping):
        return ", ".join(f"{name}: {_format_value(value)}" for name, value in fields.items())
    return _format_value(fields)


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
