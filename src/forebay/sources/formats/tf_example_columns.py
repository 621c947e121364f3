"""Features of `tf.train.Example` messages as leaves.

They are written one record at a time, or for many records of one layout at once.

Most records of a file differ only in their values: names, lengths and order are the same bytes at the same positions.
After one record is parsed, other records of its length are compared with these bytes. The values of all records that
match are then copied together.
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
    """One feature as a leaf.

    A bytes value is the raw memory of an array, unless `decode` converts it.
    """

    name: str
    kind: Kind
    spec: ArraySpec
    decode: Callable[[bytes], Any] | None = None

    @property
    def count(self) -> int:
        """Number of values in a row."""
        return math.prod(length or 0 for length in self.spec.shape)

    def write(self, record: bytes, feature: Feature, row: Array) -> None:
        """Write the values of a record to `row`, an array of one row.

        Raise `ValueError` if they do not fit.
        """
        if feature.kind != self.kind:
            raise ValueError(f"{self.name!r} has values of type {feature.kind} instead of {self.kind}")
        values = self._values(record, feature)
        if values.size != self.count or values.dtype != self.spec.dtype:
            got = ArraySpec(values.shape, values.dtype)
            raise ValueError(f"{self.name!r} has {got} instead of {self.spec}")
        row[0] = values.reshape(row.shape[1:])

    def _values(self, record: bytes, feature: Feature) -> Array:
        if self.kind != "bytes":
            return feature.numbers(record)
        if len(feature.spans) != 1:
            raise ValueError(f"{self.name!r} has {len(feature.spans)} values instead of one")
        data = record[slice(*feature.spans[0])]
        if self.decode is not None:
            return np.asarray(self.decode(data))
        if len(data) != self.spec.nbytes:
            raise ValueError(f"{self.name!r} has {len(data)} bytes, but {self.spec} needs {self.spec.nbytes}")
        return np.frombuffer(data, self.spec.dtype)


def make_column(
    name: str, record: bytes, feature: Feature, wanted: ArraySpec | None, decode: Callable[[bytes], Any] | None
) -> FeatureColumn:
    """Infer the spec of a feature from the first record.

    A single number has no axis unless `wanted` has one.
    """
    if feature.kind != "bytes":
        count = len(feature.numbers(record))
        dtype = np.float32 if feature.kind == "float" else np.int64
        has_size = wanted is not None and not wanted.ragged and math.prod(n or 0 for n in wanted.shape) == count
        shape = wanted.shape if wanted is not None and has_size else () if count == 1 else (count,)
        return FeatureColumn(name, feature.kind, ArraySpec(shape, dtype))
    if decode is not None and len(feature.spans) == 1:
        array = np.asarray(decode(record[slice(*feature.spans[0])]))
        return FeatureColumn(name, "bytes", ArraySpec(array.shape, array.dtype), decode)
    if decode is None and wanted is not None and not wanted.ragged:
        wanted.check(name)
        return FeatureColumn(name, "bytes", wanted)
    raise SpecError(
        f"{name!r} holds {len(feature.spans)} x bytes in the first record. If they are the memory of an array, "
        f"describe it with spec=; else convert them with decode={{{name!r}: function}}, or choose other features with "
        "members=[...]."
    )


class RecordLayout:
    """The byte layout that many records of a file share.

    It has the positions of the values, and the bytes between them, which are equal in all records of the layout.
    """

    def __init__(self, record: bytes, features: dict[str, Feature], columns: Sequence[FeatureColumn]) -> None:
        data = np.frombuffer(record, np.uint8)
        fixed_bits = np.full(len(data), 0xFF, np.uint8)
        for feature in features.values():
            for start, stop in feature.spans:
                # In a varint, the top bit of each byte marks where the number ends.
                fixed_bits[start:stop] = 0x80 if feature.kind == "int64" else 0
        self._positions = np.flatnonzero(fixed_bits)
        self._bits = fixed_bits[self._positions]
        self._expected = data[self._positions] & self._bits
        self._spans = [features[column.name].spans[0] for column in columns]
        self._columns = columns

    @staticmethod
    def supports(features: dict[str, Feature], columns: Sequence[FeatureColumn]) -> bool:
        """Tell whether values are contiguous and no column has a decode function."""
        return all(len(features[column.name].spans) == 1 and column.decode is None for column in columns)

    def matches(self, records: Array) -> Array:
        """Return which of these records, all of the layout's length, have the layout."""
        same: Array = np.all((records[:, self._positions] & self._bits) == self._expected, axis=1)
        return same

    def write(self, records: Array, positions: Array, out: Sequence[Array]) -> None:
        """Write the values of matching records to the rows at `positions` of `out`."""
        for column, (start, stop), target in zip(self._columns, self._spans, out, strict=True):
            data = np.ascontiguousarray(records[:, start:stop])
            dtype = column.spec.dtype if column.kind == "bytes" else "<f4"
            values = read_varints(data.reshape(-1)) if column.kind == "int64" else data.view(dtype)
            target[positions] = values.reshape(len(records), *target.shape[1:])
