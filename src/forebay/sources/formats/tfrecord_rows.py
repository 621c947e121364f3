"""Records to rows: Examples by their features, or any message by a function of the user's."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.files.columns import check_chosen, named
from forebay.sources.formats.tf_example import Feature, parse_example
from forebay.sources.formats.tf_example_columns import FeatureLeaf, Pattern, leaf_of

__all__ = ["ExampleReader", "FunctionReader", "RecordReader"]

_MOST_PATTERNS = 64  # of one file: with more, its records are too unlike for patterns to help


class RecordReader(Protocol):
    """Makes rows of records."""

    @property
    def specs(self) -> Sequence[ArraySpec]: ...
    @property
    def structure(self) -> Structure: ...
    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        """Write the row of each record; the numbers are what errors call them."""
        ...


class FunctionReader:
    """A row is what the user's function makes of a record."""

    def __init__(self, path: Path, function: Callable[[bytes], Tree], first: bytes) -> None:
        self._path, self._function = path, function
        leaves, self.structure = flatten(function(first))
        self.specs = [ArraySpec(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        for place, (number, record) in enumerate(zip(numbers.tolist(), records, strict=True)):
            leaves = map(np.asarray, self.structure.flatten_like(self._function(record)))
            for leaf, target, spec in zip(leaves, out, self.specs, strict=True):
                if (leaf.shape, leaf.dtype) != (spec.shape, spec.dtype):
                    got = ArraySpec(leaf.shape, leaf.dtype)
                    told = f"decode makes {got} of record {number} of {self._path}, but {spec} of the first"
                    raise SpecError(f"{told}: rows must be alike.")
                target[place] = leaf


class ExampleReader:
    """A row is a dict of features of a `tf.train.Example`."""

    def __init__(
        self,
        path: Path,
        first: bytes,
        *,
        members: Sequence[str] | None,
        spec: Tree | None,
        decode: Mapping[str, Callable[[bytes], Any]],
    ) -> None:
        self._path = path
        features = self._parse(0, first)
        wanted: dict[str, ArraySpec] = {}
        if spec is not None:
            specs, structure = as_specs(spec)
            wanted = dict(zip(structure.paths, specs, strict=True))
        chosen = list(members if members is not None else wanted or sorted(features))
        check_chosen(path, "feature", [*chosen, *decode], sorted(features))
        self._leaves = [leaf_of(name, first, features[name], wanted.get(name), decode.get(name)) for name in chosen]
        self.specs, self.structure = [leaf.spec for leaf in self._leaves], named(chosen)
        self._patterns: dict[int, Pattern] = {}

    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        for length in np.unique(lengths).tolist():
            places = np.flatnonzero(lengths == length)
            left = self._read_alike(length, places, records, out)
            for place in left.tolist():
                self._read_one(int(numbers[place]), records[place], [leaf[place : place + 1] for leaf in out])

    def _read_alike(self, length: int, places: Array, records: Sequence[bytes], out: Sequence[Array]) -> Array:
        """Rows of records that are written as one that was seen before; the places of the others."""
        pattern = self._patterns.get(length)
        if pattern is None:
            return places
        data = np.frombuffer(b"".join([records[place] for place in places.tolist()]), np.uint8).reshape(-1, length)
        fits = pattern.fits(data)
        if not fits.all():
            data = data[fits]
        pattern.write(data, places[fits], out)
        return places[~fits]

    def _read_one(self, number: int, record: bytes, row: Sequence[Array]) -> None:
        features = self._parse(number, record)
        for leaf, target in zip(self._leaves, row, strict=True):
            self._write(leaf, number, record, features, target)
        if len(self._patterns) < _MOST_PATTERNS and Pattern.exists(features, self._leaves):
            self._patterns.setdefault(len(record), Pattern(record, features, self._leaves))

    def _write(
        self, leaf: FeatureLeaf, number: int, record: bytes, features: dict[str, Feature], target: Array
    ) -> None:
        if leaf.name not in features:
            has = ", ".join(map(repr, sorted(features)))
            raise SourceError(f"record {number} of {self._path} has no feature {leaf.name!r}: it has {has}.")
        if leaf.decode is not None:
            leaf.write(record, features[leaf.name], target)  # errors of the user's function stay as they are
            return
        try:
            leaf.write(record, features[leaf.name], target)
        except ValueError as error:
            raise SourceError(
                f"record {number} of {self._path} is unlike the first: {error}. Make rows alike, or use decode=."
            ) from error

    def _parse(self, number: int, record: bytes) -> dict[str, Feature]:
        try:
            return parse_example(record)
        except ValueError as error:
            raise SourceError(
                f"record {number} of {self._path} is no tf.train.Example: {error}. Pass decode=function to make a row "
                "of each record."
            ) from error
