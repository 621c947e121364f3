"""Labels of images as numbers: from folder names, from a manifest or from a function.

A manifest is a .csv or .parquet file with the columns `file` and `label`.
"""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.errors import FrameworkError, SourceError, SpecError
from forebay.sources.files.mapped import validate_file

__all__ = [
    "ImageLabel",
    "NumberedLabels",
    "decode_label",
    "find_file_labels",
    "number_labels",
    "parse_numbers",
    "validate_label",
]

# "folder", the path of a manifest, or a function from the path of a file to its number or class name. For files that
# contain images: also the name of a column with labels, a TFRecord feature, a dataset of HDF5, the extension of tar
# members, or the beginning of LMDB keys.
ImageLabel: TypeAlias = str | Path | Callable[[Path], int | str]
_LABEL_DTYPE = np.dtype(np.int64)
_MANIFEST_COLUMNS = ("file", "label")
_MAX_LABEL_LENGTH = 1000  # characters; a longer text is probably no class name
_PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class NumberedLabels:
    """Labels as numbers.

    An image is left out if its class is not in the `class_names` of the user.
    """

    kept: Sequence[int]  # positions of the images that are not left out
    numbers: Array  # int64, one for each kept image
    class_names: tuple[str, ...]  # of the labels 0, 1, ...; empty if the labels were numbers
    left_out: int = 0  # number of images that are left out


def number_labels(names: Sequence[Any], found: Sequence[Any], class_names: Sequence[str] | None) -> NumberedLabels:
    """Convert the labels `found` to numbers.

    Class names are numbered in sorted order, or in the order of `class_names`. Labels that are numbers stay unchanged.
    `names` are the names of the images in error messages.
    """
    if all(isinstance(value, int) for value in found):
        if class_names is not None:
            raise SpecError("class_names= gives numbers to class names, but the labels are numbers. Omit class_names=.")
        return NumberedLabels(range(len(found)), _as_int64(found), ())
    _validate_class_names(names, found, class_names)
    classes = tuple(sorted(set(found)) if class_names is None else class_names)
    numbers = {name: number for number, name in enumerate(classes)}
    kept = [position for position, name in enumerate(found) if name in numbers]
    labels = np.asarray([numbers[found[position]] for position in kept], _LABEL_DTYPE)
    return NumberedLabels(kept, labels, classes, len(found) - len(kept))


def find_file_labels(paths: Sequence[Path], label: ImageLabel) -> list[Any]:
    """Return the label of each file: an integer or a class name."""
    if isinstance(label, str) and label == "folder":
        return [path.parent.name or path.absolute().parent.name for path in paths]
    if isinstance(label, str | Path):
        return _look_up(paths, Path(label).expanduser())
    if not callable(label):
        raise SpecError(f"label={label!r} is unknown. Pass 'folder', the path of a manifest, or a function of a path.")
    return [validate_label(path, label(path)) for path in paths]


def validate_label(name: object, value: Any) -> int | str:
    """Return `value`, the result of the user's function, as an int or str.

    Raise SpecError if it is neither. `name` is the name of the image in the message.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    raise SpecError(f"the label of {name} is {value!r}. Return an integer or the name of a class from label=.")


def _validate_class_names(names: Sequence[Any], found: Sequence[Any], class_names: Sequence[str] | None) -> None:
    for image, value in zip(names, found, strict=True):
        if not isinstance(value, str):
            raise SpecError(
                f"the label of {image} is the number {value}, but other labels are class names. Use one kind of label."
            )
    if class_names is None:
        return
    is_list = isinstance(class_names, list | tuple) and all(isinstance(name, str) for name in class_names)
    if not is_list or not class_names or len(set(class_names)) < len(class_names):
        raise SpecError(f"class_names={class_names!r} is not a list of different names. Pass each name once.")
    known = set(found)
    for name in class_names:
        if name not in known:
            classes = ", ".join(map(repr, sorted(known)[:10])) + (", ..." if len(known) > 10 else "")
            raise SourceError(
                f"no image belongs to the class {name!r} of class_names. The images belong to {classes}. Correct "
                "class_names. Or omit class_names and pass a function that returns the number of each class as label=."
            )


def _as_int64(labels: Sequence[int]) -> Array:
    try:
        return np.asarray(labels, _LABEL_DTYPE)
    except OverflowError as error:
        largest = max(labels, key=abs)
        raise SpecError(f"the label {largest} exceeds 64 bits. Use smaller numbers as labels.") from error


def _look_up(paths: Sequence[Path], manifest: Path) -> list[Any]:
    """Return the label of each file from a manifest.

    File names in the manifest are relative to its folder.
    """
    folder, labels = manifest.absolute().parent, dict[str, Any]()
    for file, value in _read_manifest(manifest):
        key = os.path.normpath(folder / file)
        if labels.setdefault(key, value) != value:
            raise SourceError(
                f"{manifest} has two labels for {file!r}: {labels[key]!r} and {value!r}. Remove one of them."
            )
    found = [labels.get(os.path.normpath(path.absolute())) for path in paths]
    for path, value in zip(paths, found, strict=True):
        if value is None:
            raise SourceError(
                f"{path} is not in the column 'file' of {manifest}. Add it (relative to {folder}), or leave the image "
                "out."
            )
    return parse_numbers(found)


def parse_numbers(labels: Sequence[Any]) -> list[Any]:
    """Return all labels as integers if possible, else all labels as texts.

    A text such as '07' is no integer, because Python prints 7 without the zero. Raise SpecError if all labels are
    numbers, and one of them, such as '0.5', is no integer: such numbers are no class names.
    """
    non_integers = [value for value in labels if isinstance(value, str) and not _is_integer(value)]
    if non_integers and all(isinstance(value, int) or _is_finite(value) for value in labels):
        raise SpecError(
            f"the label {non_integers[0]!r} is no integer, and all labels are numbers, so they are no class names. "
            "Pass integers or class names, or feed numbers together with the images: "
            "fb.zip_rows(images, fb.from_arrays({'target': numbers}))."
        )
    convert = int if all(isinstance(value, int) or _is_plain_integer(value) for value in labels) else str
    return [convert(value) for value in labels]


def decode_label(image: str, data: bytes) -> str:
    """Return the bytes of a label as text. `image` names the image in error messages."""
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > _MAX_LABEL_LENGTH or not text.isprintable():
        raise SourceError(
            f"the label of {image} is {data[:40]!r}, which is not a short UTF-8 text. Store a number or a class name "
            "as text, or choose other labels with label=."
        )
    return text


def _is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _is_finite(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _is_plain_integer(text: str) -> bool:
    """Return whether a text is an integer without leading zeros, plus sign or underscores."""
    try:
        return str(int(text)) == text.strip()
    except ValueError:
        return False


def _read_manifest(manifest: Path) -> list[tuple[str, Any]]:
    """Return (file name, label) for each line of a manifest."""
    suffix = manifest.suffix.lower()
    if suffix != ".csv" and suffix not in _PARQUET_SUFFIXES:
        raise SpecError(
            f"label={str(manifest)!r} is unknown. Pass 'folder', the path of a .csv or .parquet manifest, or a "
            "function of a path."
        )
    validate_file(manifest)
    try:
        files, labels = _read_csv(manifest) if suffix == ".csv" else _read_parquet(manifest)
    except (SourceError, FrameworkError):
        raise
    except Exception as error:
        raise SourceError(f"{manifest} cannot be read: {error}. Write it again.") from error
    for file, value in zip(files, labels, strict=True):
        if not isinstance(file, str) or not isinstance(value, str | int):
            raise SourceError(
                f"{manifest} has the line {file!r}, {value!r}. Write a file name, and an integer or a class name."
            )
        if isinstance(value, str) and not value.strip():
            raise SourceError(f"{manifest} has no label for {file!r}. Add it, or remove the line.")
    return list(zip(files, labels, strict=True))


def _read_csv(manifest: Path) -> list[list[Any]]:
    with manifest.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        _validate_columns(manifest, reader.fieldnames or ())
        lines = list(reader)
    return [[line[name] for line in lines] for name in _MANIFEST_COLUMNS]


def _read_parquet(manifest: Path) -> list[list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise FrameworkError(
            "Parquet manifests need pyarrow, which is not installed. Run: pip install 'forebay[arrow]'. Or write a "
            ".csv file.",
            name="pyarrow",
        ) from error
    with parquet.ParquetFile(manifest) as file:
        _validate_columns(manifest, file.schema_arrow.names)
        table = file.read(columns=list(_MANIFEST_COLUMNS))
    table.validate(full=True)
    return [table[name].to_pylist() for name in _MANIFEST_COLUMNS]


def _validate_columns(manifest: Path, names: Sequence[str]) -> None:
    for column in _MANIFEST_COLUMNS:
        if column not in names:
            raise SourceError(
                f"{manifest} has no column {column!r}. It has {', '.join(map(repr, names)) or 'none'}. Add the column."
            )
