"""`.csv` and `.txt`: opens tables of numbers, with or without a header."""

import csv
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from forebay.core.spec import Tree
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.formats.csv_columns import Columns, deal_columns
from forebay.sources.formats.csv_lines import LineIndex, scan_lines
from forebay.sources.formats.csv_table import TableSource

__all__ = ["Header", "open_csv", "open_txt"]

Header: TypeAlias = Literal["auto", "present", "absent"]

_MAX_COMMENTS = 1000  # lines at the top that begin with "#"


def open_csv(path: PathName, *, spec: Tree | None = None, delimiter: str = ",", header: Header = "auto") -> TableSource:
    """Open a table of numbers. Without `spec=` a row is one float64 array of all columns, as `numpy.loadtxt` reads it.

    `spec={"x": ArraySpec((4,), "float32"), "label": "int64"}` deals the columns out in order; where the file has a
    header, a column called `label` goes to that leaf wherever it stands, and if every leaf is found by its name, the
    other columns are left out. `header="auto"` takes a first line without any number in it for a header; lines at the
    top that begin with `#` are passed over. Numbers are written plainly: quoted fields are refused.
    """
    if len(delimiter) != 1 or delimiter in '\r\n"#':
        raise SourceError(f"delimiter={delimiter!r} cannot part columns: pass one character, such as ',' or ';'.")
    return _open(path, spec, delimiter, header)


def open_txt(path: PathName, *, spec: Tree | None = None, header: Header = "auto") -> TableSource:
    """Open a table of numbers with white space between them, such as `numpy.savetxt` writes; else like `open_csv`."""
    return _open(path, spec, None, header)


def _open(path: PathName, spec: Tree | None, delimiter: str | None, header: Header) -> TableSource:
    if header not in get_args(Header):
        raise SourceError(f"header={header!r} is not known: choose one of {', '.join(map(repr, get_args(Header)))}.")
    file = MappedFile(path)
    index = scan_lines(file)
    if index.count == 0:
        raise SourceError(f"{path} is empty: a table has a header or a row at least.")
    first_line, names, count = _read_top(file, index, delimiter, header)
    chosen, specs, structure = deal_columns(file.path, names, count, spec)
    return TableSource(file, index, Columns(file.path, first_line, delimiter, count, chosen, specs, structure))


def _read_top(file: MappedFile, index: LineIndex, delimiter: str | None, header: Header) -> tuple[int, list[str], int]:
    """Where the data begins, the names of the columns where they have some, and how many columns there are."""
    lines = [line.rstrip("\r") for line in index.read(file, 0, min(index.count, _MAX_COMMENTS + 2))]
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if first > _MAX_COMMENTS:
        raise SourceError(f"the first {first} lines of {file.path} begin with '#': there is no table to be found.")
    # numpy.savetxt(header=...) writes the names behind a "#".
    names = _split(file, lines[first - 1].lstrip("# "), delimiter) if first else []
    has_header = header == "present" or (header == "auto" and not _has_number(lines[first : first + 1], delimiter))
    if has_header and first < len(lines):
        names, first = _split(file, lines[first], delimiter), first + 1
    if first == len(lines):
        return first, names, len(names)
    count = len(_split(file, lines[first], delimiter))
    if has_header and len(names) != count:
        raise SourceError(
            f"the header of {file.path} names {len(names)} columns, but line {first + 1} has {count}: "
            f"mend one of them, or see whether delimiter={delimiter!r} is right."
        )
    return first, names if len(names) == count else [], count


def _split(file: MappedFile, line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error as error:
        raise SourceError(f"{file.path} cannot be parted into columns at {line[:60]!r}: {error}.") from error


def _has_number(lines: Sequence[str], delimiter: str | None) -> bool:
    return any(_is_number(field) for line in lines for field in line.split(delimiter))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
