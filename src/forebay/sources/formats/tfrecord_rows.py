"""Conversion of TFRecord records to rows.

A row contains the features of a `tf.train.Example`, or is the result of the user's function.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.files.columns import dict_structure, validate_names
from forebay.sources.formats.tf_example import Feature, parse_example
from forebay.sources.formats.tf_example_columns import FeatureColumn, RecordLayout, make_column

__all__ = ["ExampleReader", "FunctionReader", "RecordReader"]

_MAX_LAYOUTS = 64  # layouts per file; if records have more lengths, layouts save little time


class RecordReader(Protocol):
    """Converts records to rows."""

    @property
    def specs(self) -> Sequence[ArraySpec]: ...
    @property
    def structure(self) -> Structure: ...
    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        """Write the row of each record to `out`.

        `numbers` are the record numbers, for error messages.
        """
        ...


class FunctionReader:
    """Converts a record to a row with the user's function."""

    def __init__(self, path: Path, function: Callable[[bytes], Tree], first_record: bytes) -> None:
        self._path, self._function = path, function
        leaves, self.structure = flatten(function(first_record))
        self.specs = [ArraySpec(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
        for spec, name in zip(self.specs, self.structure.paths, strict=True):
            spec.check(name)

    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        for position, (number, record) in enumerate(zip(numbers.tolist(), records, strict=True)):
            row = self._function(record)
            try:
                leaves = map(np.asarray, self.structure.flatten_like(row))
            except SpecError as error:
                raise SpecError(
                    f"decode returns other fields for record {number} of {self._path} than for the first record: "
                    f"{error} Return the same fields."
                ) from None
            for leaf, target, spec in zip(leaves, out, self.specs, strict=True):
                if (leaf.shape, leaf.dtype) != (spec.shape, spec.dtype):
                    actual_spec = ArraySpec(leaf.shape, leaf.dtype)
                    raise SpecError(
                        f"decode returns {actual_spec} for record {number} of {self._path}, but {spec} for the first "
                        "record. Return one shape and dtype."
                    )
                target[position] = leaf


class ExampleReader:
    """Converts a `tf.train.Example` to a row, a dict of its features."""

    def __init__(
        self,
        path: Path,
        first_record: bytes,
        *,
        members: Sequence[str] | None,
        spec: Tree | None,
        decode: Mapping[str, Callable[[bytes], Any]],
    ) -> None:
        self._path = path
        features = self._parse_record(0, first_record)
        user_specs: dict[str, ArraySpec] = {}
        if spec is not None:
            specs, structure = as_specs(spec)
            user_specs = dict(zip(structure.paths, specs, strict=True))
        names = list(members if members is not None else user_specs or sorted(features))
        validate_names(path, "feature", [*names, *decode], sorted(features))
        self._validate_numbers(first_record, [features[name] for name in names])
        self._columns = [
            make_column(name, first_record, features[name], user_specs.get(name), decode.get(name)) for name in names
        ]
        self.specs, self.structure = [column.spec for column in self._columns], dict_structure(names)
        self._layouts: dict[int, RecordLayout] = {}  # length of the records -> layout

    def read(self, numbers: Array, records: Sequence[bytes], out: Sequence[Array]) -> None:
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        for length in np.unique(lengths).tolist():
            positions = np.flatnonzero(lengths == length)
            remaining = self._read_by_layout(length, positions, records, out)
            for position in remaining.tolist():
                row = [leaf[position : position + 1] for leaf in out]
                self._read_record(int(numbers[position]), records[position], row)

    def _read_by_layout(self, length: int, positions: Array, records: Sequence[bytes], out: Sequence[Array]) -> Array:
        """Write the rows of the records that have a known layout.

        `positions` are the records of this length. Return the positions of the records that were not written.
        """
        layout = self._layouts.get(length)
        if layout is None:
            return positions
        joined = b"".join([records[position] for position in positions.tolist()])
        data = np.frombuffer(joined, np.uint8).reshape(-1, length)
        matches = layout.matches(data)
        if not matches.all():
            data = data[matches]
        layout.write(data, positions[matches], out)
        return positions[~matches]

    def _read_record(self, number: int, record: bytes, row: Sequence[Array]) -> None:
        features = self._parse_record(number, record)
        for column, target in zip(self._columns, row, strict=True):
            self._write_feature(column, number, record, features, target)
        if len(self._layouts) < _MAX_LAYOUTS and RecordLayout.supports(features, self._columns):
            self._layouts.setdefault(len(record), RecordLayout(record, features, self._columns))

    def _write_feature(
        self, column: FeatureColumn, number: int, record: bytes, features: dict[str, Feature], target: Array
    ) -> None:
        if column.name not in features:
            feature_names = ", ".join(map(repr, sorted(features)))
            raise SourceError(
                f"record {number} of {self._path} has no feature {column.name!r}. It has {feature_names}. Choose "
                "features that all records have with members=[...]."
            )
        try:
            values = column.read(record, features[column.name])
        except ValueError as error:
            raise SourceError(
                f"record {number} of {self._path} does not match the spec of the rows: {error}. Give all records one "
                "shape and dtype, correct spec=, or use decode=."
            ) from error
        if column.decode is not None:
            values = np.asarray(column.decode(values))  # errors of the user's function are raised unchanged
            if (values.shape, values.dtype) != (column.spec.shape, column.spec.dtype):
                raise SpecError(
                    f"decode[{column.name!r}] returns {ArraySpec(values.shape, values.dtype)} for record {number} of "
                    f"{self._path}, but {column.spec} for the first record. Return one shape and dtype."
                )
        target[0] = values

    def _parse_record(self, number: int, record: bytes) -> dict[str, Feature]:
        try:
            return parse_example(record)
        except ValueError as error:
            raise self._format_error(number, error) from error

    def _validate_numbers(self, first_record: bytes, features: Sequence[Feature]) -> None:
        """Raise SourceError if numbers of the first record, which determine specs, are damaged."""
        try:
            for feature in features:
                if feature.kind != "bytes":
                    feature.numbers(first_record)
        except ValueError as error:
            raise self._format_error(0, error) from error

    def _format_error(self, number: int, error: ValueError) -> SourceError:
        return SourceError(
            f"record {number} of {self._path} is not a tf.train.Example: {error}. Pass decode=function to convert "
            "each record to a row."
        )
