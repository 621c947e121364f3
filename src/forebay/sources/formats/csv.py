"""`.csv` and `.txt` files: tables of numbers, with or without a header."""

import csv
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from forebay.core.spec import Tree
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.formats.csv_columns import CsvColumns, assign_columns
from forebay.sources.formats.csv_lines import LineIndex, scan_lines
from forebay.sources.formats.csv_table import TableSource

__all__ = ["Header", "open_csv", "open_txt"]

Header: TypeAlias = Literal["auto", "present", "absent"]

_MAX_COMMENT_LINES = 1000  # lines at the top that begin with "#"


def open_csv(path: PathName, *, spec: Tree | None = None, delimiter: str = ",", header: Header = "auto") -> TableSource:
    """Open a table of numbers.

    Without `spec=`, a row is one float64 array of all columns, as in `numpy.loadtxt`.

    `spec={"x": ArraySpec((4,), "float32"), "label": "int64"}` assigns the columns to its leaves in order. If the file
    has a header, the column named `label` goes to that leaf at any position. If every leaf has the name of a column,
    the other columns are skipped. With `header="auto"`, a first line without any number is a header. Lines at the top
    that begin with `#` are skipped. Numbers must be plain: quoted fields raise an error.
    """
    if len(delimiter) != 1 or delimiter in '\r\n"#':
        raise SourceError(f"delimiter={delimiter!r} cannot separate columns. Pass one character, such as ',' or ';'.")
    return _open(path, spec, delimiter, header)


def open_txt(path: PathName, *, spec: Tree | None = None, header: Header = "auto") -> TableSource:
    """Open a table of numbers separated by white space, as `numpy.savetxt` writes it. See `open_csv`."""
    return _open(path, spec, None, header)


def _open(path: PathName, spec: Tree | None, delimiter: str | None, header: Header) -> TableSource:
    if header not in get_args(Header):
        raise SourceError(f"header={header!r} is unknown. Choose one of {', '.join(map(repr, get_args(Header)))}.")
    file = MappedFile(path)
    index = scan_lines(file)
    if index.count == 0:
        raise SourceError(f"{path} is empty. Write a header or at least one row.")
    first_line, names, count = _read_top(file, index, delimiter, header)
    selected, specs, structure = assign_columns(file.path, names, count, spec)
    return TableSource(file, index, CsvColumns(file.path, first_line, delimiter, count, selected, specs, structure))


def _read_top(file: MappedFile, index: LineIndex, delimiter: str | None, header: Header) -> tuple[int, list[str], int]:
    """Return the first line of data, the column names and the column count.

    Without a header, the list of names is empty.
    """
    lines = [line.rstrip("\r") for line in index.read(file, 0, min(index.count, _MAX_COMMENT_LINES + 2))]
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if first > _MAX_COMMENT_LINES:
        raise SourceError(f"the first {first} lines of {file.path} begin with '#', so it has no table. Check the file.")
    # numpy.savetxt(header=...) writes the names in the last comment line.
    names = _split(file, lines[first - 1].lstrip("# "), delimiter) if first else []
    has_header = header == "present" or (header == "auto" and not _has_number(lines[first : first + 1], delimiter))
    if has_header and first < len(lines):
        names, first = _split(file, lines[first], delimiter), first + 1
    if first == len(lines):
        return first, names, len(names)
    count = len(_split(file, lines[first], delimiter))
    if has_header and len(names) != count:
        raise SourceError(
            f"the header of {file.path} names {len(names)} columns, but line {first + 1} has {count}. "
            f"Correct one of them, or check delimiter={delimiter!r}."
        )
    return first, names if len(names) == count else [], count


def _split(file: MappedFile, line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise SourceError(
            f"{file.path} cannot be split into columns at {line[:60]!r}: {error}. Correct that line."
        ) from error


def _has_number(lines: Sequence[str], delimiter: str | None) -> bool:
    return any(_is_number(field) for line in lines for field in line.split(delimiter))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
