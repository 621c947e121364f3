"""Features of Examples as leaves: one record at a time, or at once all that are written in the same way.

Most records of a file differ in their values only: names, lengths and order are the same bytes at the same places.
Once one of them was taken apart, the others of its length are compared with it there, and their values are
cut out of all of them together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import SpecError
from forebay.sources.formats.tf_example import Feature, Kind, read_varints

__all__ = ["FeatureLeaf", "Pattern", "leaf_of"]


@dataclass(frozen=True, slots=True)
class FeatureLeaf:
    """One feature as a leaf; bytes are a row as it is stored, unless `decode` makes one of them."""

    name: str
    kind: Kind
    spec: ArraySpec
    decode: Callable[[bytes], Any] | None = None

    @property
    def count(self) -> int:
        """Numbers of a row."""
        return math.prod(length or 0 for length in self.spec.shape)

    def write(self, record: bytes, feature: Feature, row: Array) -> None:
        """Put a record's values into `row`, an array of one row; `ValueError` where they do not fit."""
        if feature.kind != self.kind:
            raise ValueError(f"{self.name!r} holds {feature.kind} in it, and {self.kind} in the first")
        values = self._values(record, feature)
        if values.size != self.count or values.dtype != self.spec.dtype:
            got = ArraySpec(values.shape, values.dtype)
            raise ValueError(f"{self.name!r} has {got} in it instead of {self.spec}")
        row[0] = values.reshape(row.shape[1:])

    def _values(self, record: bytes, feature: Feature) -> Array:
        if self.kind != "bytes":
            return feature.numbers(record)
        if len(feature.pieces) != 1:
            raise ValueError(f"{self.name!r} has {len(feature.pieces)} values in it instead of one")
        data = record[slice(*feature.pieces[0])]
        if self.decode is not None:
            return np.asarray(self.decode(data))
        if len(data) != self.spec.nbytes:
            raise ValueError(f"{self.name!r} has {len(data)} bytes in it, but {self.spec} takes {self.spec.nbytes}")
        return np.frombuffer(data, self.spec.dtype)


def leaf_of(
    name: str, record: bytes, feature: Feature, wanted: ArraySpec | None, decode: Callable[[bytes], Any] | None
) -> FeatureLeaf:
    """What rows of a feature are, by the first record: a lone number has no shape, unless the spec gives it one."""
    if feature.kind != "bytes":
        count = len(feature.numbers(record))
        dtype = np.float32 if feature.kind == "float" else np.int64
        fits = wanted is not None and not wanted.ragged and math.prod(n or 0 for n in wanted.shape) == count
        shape = wanted.shape if wanted is not None and fits else () if count == 1 else (count,)
        return FeatureLeaf(name, feature.kind, ArraySpec(shape, dtype))
    if decode is not None and len(feature.pieces) == 1:
        made = np.asarray(decode(record[slice(*feature.pieces[0])]))
        return FeatureLeaf(name, "bytes", ArraySpec(made.shape, made.dtype), decode)
    if decode is None and wanted is not None and not wanted.ragged:
        wanted.check(name)
        return FeatureLeaf(name, "bytes", wanted)
    raise SpecError(
        f"{name!r} holds {len(feature.pieces)} x bytes in the first record: if they are an array as it lies in memory, "
        f"say which with spec=; else make one of them with decode={{{name!r}: function}}, or choose others with "
        "members=[...]."
    )


class Pattern:
    """Where the values of a record lie, and the bytes between them, which records like it share."""

    def __init__(self, record: bytes, features: dict[str, Feature], leaves: Sequence[FeatureLeaf]) -> None:
        data = np.frombuffer(record, np.uint8)
        fixed = np.full(len(data), 0xFF, np.uint8)
        for feature in features.values():
            for start, stop in feature.pieces:
                # Of whole numbers the top bit says where each ends.
                fixed[start:stop] = 0x80 if feature.kind == "int64" else 0
        self._places = np.flatnonzero(fixed)
        self._bits = fixed[self._places]
        self._same = data[self._places] & self._bits
        self._spans = [features[leaf.name].pieces[0] for leaf in leaves]
        self._leaves = leaves

    @staticmethod
    def exists(features: dict[str, Feature], leaves: Sequence[FeatureLeaf]) -> bool:
        """Whether each leaf lies in one piece, and none is the user's to decode."""
        return all(len(features[leaf.name].pieces) == 1 and leaf.decode is None for leaf in leaves)

    def fits(self, records: Array) -> Array:
        """Which of these records, all as long as the pattern's, are written as it was."""
        same: Array = np.all((records[:, self._places] & self._bits) == self._same, axis=1)
        return same

    def write(self, records: Array, places: Array, out: Sequence[Array]) -> None:
        """Put the values of records that fit into rows of `out`."""
        for leaf, (start, stop), target in zip(self._leaves, self._spans, out, strict=True):
            data = np.ascontiguousarray(records[:, start:stop])
            dtype = leaf.spec.dtype if leaf.kind == "bytes" else "<f4"
            values = read_varints(data.reshape(-1)) if leaf.kind == "int64" else data.view(dtype)
            target[places] = values.reshape(len(records), *target.shape[1:])
