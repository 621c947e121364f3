"""Images in Parquet and Arrow files.

A column has the bytes of the images, or structs with a field `bytes`, as Hugging Face datasets have them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.core.chunk_policy import ChunkPolicy
from forebay.errors import SourceError
from forebay.sources.files.columns import validate_names
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.arrow import read_batches
from forebay.sources.formats.arrow_columns import ColumnFile
from forebay.sources.formats.image_labels import ImageLabel
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer
from forebay.sources.formats.parquet import ParquetFile

__all__ = ["open_arrow_images", "open_parquet_images"]


def open_parquet_images(path: Path, options: ContainerOptions) -> "ArrowImages":
    """Open the images of a Parquet file. `options.cache` keeps decompressed row groups."""
    file = MappedFile(path)
    parquet = ParquetFile(file, options.budget)
    return ArrowImages(file, parquet, parquet.nbytes, options, is_decompressed=True)


def open_arrow_images(path: Path, options: ContainerOptions) -> "ArrowImages":
    """Open the images of an Arrow file. `options.cache` keeps record batches."""
    file = MappedFile(path)
    batches = read_batches(file, options.budget)
    nbytes = batches.decompressed_nbytes
    return ArrowImages(file, batches, nbytes, options, is_decompressed=nbytes > 0)


class ArrowImages(ImageContainer):
    """The images of one file, read one row group or record batch at a time."""

    def __init__(
        self, mapped: MappedFile, file: ColumnFile, nbytes: int, options: ContainerOptions, *, is_decompressed: bool
    ) -> None:
        """Open the images of a file.

        For Parquet, `nbytes` is the decompressed size of all row groups, with all columns. For Arrow, it is the
        decompressed size of all compressed batches. If `is_decompressed` is False, values are views of the mapped file,
        so the cache does not count their bytes.
        """
        self.path, self._mapped, self._file, self._cache = mapped.path, mapped, file, options.cache
        self._is_decompressed = is_decompressed
        column = options.column
        if column is not None:
            validate_names(self.path, "column", [column], file.schema.names)
        self._column = column or self._find_column()
        if file.schema.names.count(self._column) > 1:
            raise SourceError(f"{self.path} has two columns named {self._column!r}. Write it with different names.")
        self._field = file.schema.field(self._column)
        if not _has_bytes(self._field.type):
            raise SourceError(
                f"{self._column!r} in {self.path} holds {self._field.type}, not the bytes of images. Pass another "
                f"column of {', '.join(map(repr, file.schema.names))} as column=."
            )
        if is_decompressed and len(self):
            rows = int(np.diff(file.boundaries).max())
            self.chunk_policy = ChunkPolicy(rows, max(1, -(-nbytes // len(self))))

    def __len__(self) -> int:
        return int(self._file.boundaries[-1])

    def describe(self, number: int) -> str:
        return f"row {number} of {self._column!r} in {self.path}"

    def read(self, number: int) -> bytes:
        self._mapped.check_unchanged()
        part = int(np.searchsorted(self._file.boundaries, number, "right")) - 1
        values = self._cache.get((self.path, part), lambda: self._read_images(part))
        value = values[number - int(self._file.boundaries[part])].as_py()
        if value is None:
            raise SourceError(f"{self.describe(number)} is null. Write the bytes of the image, or remove the row.")
        return bytes(value)

    def read_labels(self, label: ImageLabel) -> list[Any]:
        if not isinstance(label, str):
            raise SourceError(f"rows of {self.path} have no path. Pass the name of a column as label=.")
        validate_names(self.path, "column", [label], self._file.schema.names)
        values: list[Any] = []
        for part in range(len(self._file.boundaries) - 1):
            values += self._read_part(label, part).to_pylist()
        for number, value in enumerate(values):
            if not isinstance(value, str | int):
                raise SourceError(
                    f"{label!r} in {self.path} has the value {str(value)[:40]!r} in row {number}. Choose a column of "
                    "integers or class names as label=."
                )
        return values

    def read_class_names(self, label: ImageLabel) -> tuple[str, ...]:
        return _read_class_names(self._file.schema, str(label))

    def _find_column(self) -> str:
        found = [field.name for field in self._file.schema if _has_bytes(field.type)]
        if len(found) != 1:
            names = ", ".join(f"{field.name!r} ({str(field.type)[:40]})" for field in self._file.schema)
            advice = "Pass one as column=" if found else "Store images as bytes, or as structs with the field `bytes`"
            raise SourceError(
                f"{self.path} has {len(found)} columns that may hold images. Its columns: {names}. {advice}."
            )
        return str(found[0])

    def _read_images(self, part: int) -> tuple[Any, int]:
        """Return the values of row group or record batch `part`, and their bytes of memory."""
        values = self._read_part(self._column, part)
        if pa.types.is_struct(values.type):
            values = pc.struct_field(values, "bytes")
        return values, values.nbytes if self._is_decompressed else 0

    def _read_part(self, name: str, part: int) -> Any:
        values = self._file.read_column(name, part)
        try:
            values.validate(full=True)  # otherwise wrong offsets could crash the process
        except pa.ArrowException as error:
            raise SourceError(f"{name!r} in {self.path} is damaged: {error}. Write or download it again.") from error
        return values


def _has_bytes(arrow_type: Any) -> bool:
    """Return whether values of this type may be encoded images."""
    if pa.types.is_struct(arrow_type):
        return arrow_type.get_field_index("bytes") >= 0 and _has_bytes(arrow_type.field("bytes").type)
    return bool(pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


def _read_class_names(schema: Any, label: str) -> tuple[str, ...]:
    """Return the class names in the metadata of Hugging Face datasets; empty without any."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_list and len(set(names)) == len(names) else ()
