"""Conversion of `tf.train.Example` features to leaves.

`FeatureColumn` converts one record at a time. `RecordLayout` converts many records at once.

Often, the records of a file differ only in their values: names, lengths and order are the same bytes at the same
positions. After one record is parsed, its `RecordLayout` compares these bytes with those of other records of the same
length. It then copies the values of all records that match.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import SpecError
from forebay.sources.formats.tf_example import Feature, Kind, read_varints

__all__ = ["FeatureColumn", "RecordLayout", "make_column"]


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """Converts one feature to a leaf.

    `decode` converts a bytes value to an array. Without `decode`, the bytes are the raw memory of an array.
    """

    name: str
    kind: Kind
    spec: ArraySpec
    decode: Callable[[bytes], Any] | None = None

    @property
    def count(self) -> int:
        """Number of array elements in one row."""
        return math.prod(length or 0 for length in self.spec.shape)

    def read(self, record: bytes, feature: Feature) -> Any:
        """Return the values of `feature` as an array, or its bytes for the decode function.

        Raise `ValueError` if the kind or the number of elements differs from this column.
        """
        if feature.kind != self.kind:
            raise ValueError(f"{self.name!r} has values of type {feature.kind} instead of {self.kind}")
        if self.kind != "bytes":
            values = feature.numbers(record)
        else:
            if len(feature.spans) != 1:
                raise ValueError(f"{self.name!r} has {len(feature.spans)} values instead of one")
            data = record[slice(*feature.spans[0])]
            if self.decode is not None:
                return data
            if len(data) != self.spec.nbytes:
                raise ValueError(f"{self.name!r} has {len(data)} bytes, but {self.spec} needs {self.spec.nbytes}")
            values = np.frombuffer(data, self.spec.dtype) if data else np.empty(0, self.spec.dtype)
        if values.size != self.count:
            raise ValueError(f"{self.name!r} has {ArraySpec(values.shape, values.dtype)} instead of {self.spec}")
        return values.reshape(self.spec.batch_shape(1)[1:])


def make_column(
    name: str, record: bytes, feature: Feature, user_spec: ArraySpec | None, decode: Callable[[bytes], Any] | None
) -> FeatureColumn:
    """Make the column of a feature. `record` is the first record.

    The first record determines the spec of numbers and of decoded bytes. Numbers get the shape of `user_spec` if it has
    the right size; otherwise a single number becomes a scalar and several become an array with one axis. `user_spec`
    determines the spec of bytes without a decode function.
    """
    if feature.kind != "bytes":
        count = len(feature.numbers(record))
        dtype = np.float32 if feature.kind == "float" else np.int64
        has_right_size = (
            user_spec is not None
            and not user_spec.ragged
            and math.prod(length or 0 for length in user_spec.shape) == count
        )
        shape = user_spec.shape if user_spec is not None and has_right_size else () if count == 1 else (count,)
        return FeatureColumn(name, feature.kind, ArraySpec(shape, dtype))
    if decode is not None and len(feature.spans) == 1:
        array = np.asarray(decode(record[slice(*feature.spans[0])]))
        return FeatureColumn(name, "bytes", ArraySpec(array.shape, array.dtype), decode)
    if decode is None and user_spec is not None and not user_spec.ragged:
        user_spec.check(name)
        return FeatureColumn(name, "bytes", user_spec)
    raise SpecError(
        f"{name!r} holds values of type bytes (number in the first record: {len(feature.spans)}). If each record has "
        f"one value, describe its array with spec=, or convert it with decode={{{name!r}: function}}. Otherwise choose "
        "other features with members=[...]."
    )


class RecordLayout:
    """The byte layout that many records of a file share.

    It stores the positions of the values and the bytes between them, which are equal in all records of the layout.
    """

    def __init__(self, record: bytes, features: dict[str, Feature], columns: Sequence[FeatureColumn]) -> None:
        data = np.frombuffer(record, np.uint8)
        fixed_bits = np.full(len(data), 0xFF, np.uint8)
        for feature in features.values():
            for start, stop in feature.spans:
                # The top bit of each byte of a varint marks the end of the number, so it belongs to the layout.
                fixed_bits[start:stop] = 0x80 if feature.kind == "int64" else 0
        self._fixed_positions = np.flatnonzero(fixed_bits)
        self._fixed_bits = fixed_bits[self._fixed_positions]
        self._expected_bytes = data[self._fixed_positions] & self._fixed_bits
        self._spans = [features[column.name].spans[0] for column in columns]
        self._columns = columns

    @staticmethod
    def supports(features: dict[str, Feature], columns: Sequence[FeatureColumn]) -> bool:
        """Return whether a record with these features can define a layout.

        The values of each column must be contiguous, and no column may have a decode function.
        """
        return all(len(features[column.name].spans) == 1 and column.decode is None for column in columns)

    def matches(self, records: Array) -> Array:
        """Return for each record whether it has this layout.

        All records must have the length of the layout.
        """
        has_layout: Array = np.all(
            (records[:, self._fixed_positions] & self._fixed_bits) == self._expected_bytes, axis=1
        )
        return has_layout

    def write(self, records: Array, positions: Array, out: Sequence[Array]) -> None:
        """Write the values of matching records to the rows at `positions` of `out`."""
        for column, (start, stop), target in zip(self._columns, self._spans, out, strict=True):
            data = np.ascontiguousarray(records[:, start:stop])
            dtype = column.spec.dtype if column.kind == "bytes" else "<f4"
            values = read_varints(data.reshape(-1)) if column.kind == "int64" else data.view(dtype)
            target[positions] = values.reshape(len(records), *target.shape[1:])
