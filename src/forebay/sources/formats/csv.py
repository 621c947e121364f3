"""`.csv` and `.txt` files as a source: tables of numbers, with or without a header."""

import csv
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from forebay.core.spec import Tree
from forebay.errors import SourceError
from forebay.sources.files.held_budget import DEFAULT_HELD_NBYTES
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.formats.csv_columns import CsvColumns, assign_columns
from forebay.sources.formats.csv_lines import LineIndex, scan_lines
from forebay.sources.formats.csv_table import TableSource

__all__ = ["Header", "open_csv", "open_txt"]

Header: TypeAlias = Literal["auto", "present", "absent"]

_MAX_COMMENT_LINES = 1000  # lines with "#" at the top of a file; a file with more such lines is refused


def open_csv(
    path: PathName,
    *,
    spec: Tree | None = None,
    delimiter: str = ",",
    header: Header = "auto",
    max_held_nbytes: int = DEFAULT_HELD_NBYTES,
) -> TableSource:
    """Open a table of numbers as a source with one row per line.

    Without `spec=`, a row is one float64 array of all columns, as in `numpy.loadtxt`.

    `spec={"x": ArraySpec((4,), "float32"), "label": "int64"}` assigns columns to leaves. If the file has a header, a
    scalar leaf such as `label` gets the column of its name. The other leaves get the other columns in order. If every
    leaf gets a column by name, further columns are skipped.

    Lines at the top that begin with `#` are skipped. The last of them may name the columns. With `header="auto"`, the
    next line is a header if it contains no number. Quoted fields in rows raise an error.

    If the parsed rows take at most 256 MiB and at most `max_held_nbytes`, they stay in memory.
    """
    if len(delimiter) != 1 or delimiter in '\r\n"#':
        raise SourceError(f"delimiter={delimiter!r} cannot separate columns. Pass one character, such as ',' or ';'.")
    return _open_table(path, spec, delimiter, header, max_held_nbytes)


def open_txt(
    path: PathName,
    *,
    spec: Tree | None = None,
    header: Header = "auto",
    max_held_nbytes: int = DEFAULT_HELD_NBYTES,
) -> TableSource:
    """Open a table of numbers separated by white space, as `numpy.savetxt` writes it.

    `open_csv` describes the options.
    """
    return _open_table(path, spec, None, header, max_held_nbytes)


def _open_table(
    path: PathName, spec: Tree | None, delimiter: str | None, header: Header, max_held_nbytes: int
) -> TableSource:
    if header not in get_args(Header):
        raise SourceError(f"header={header!r} is unknown. Choose one of {', '.join(map(repr, get_args(Header)))}.")
    file = MappedFile(path)
    line_index = scan_lines(file)
    if line_index.count == 0:
        raise SourceError(f"{path} is empty. Write a header or at least one row.")
    first_line, names, column_count = _read_header(file, line_index, delimiter, header)
    selected_columns, specs, structure = assign_columns(file.path, names, column_count, spec)
    columns = CsvColumns(file.path, first_line, delimiter, column_count, selected_columns, specs, structure)
    return TableSource(file, line_index, columns, max_held_nbytes)


def _read_header(
    file: MappedFile, line_index: LineIndex, delimiter: str | None, header: Header
) -> tuple[int, list[str], int]:
    """Return the number of the first data line, the column names and the column count.

    The list of names is empty if neither a header nor a comment names the columns.
    """
    lines, first_line = _read_first_lines(file, line_index)
    if first_line > _MAX_COMMENT_LINES:
        raise SourceError(
            f"the first {first_line} lines of {file.path} begin with '#', so it has no table. Check the file."
        )
    # numpy.savetxt(header=...) may write the names in the last comment line.
    names = _split_line(file, lines[first_line - 1].lstrip("# "), delimiter) if first_line else []
    has_header = header == "present" or (
        header == "auto" and not _has_number(lines[first_line : first_line + 1], delimiter)
    )
    if has_header and first_line < len(lines):
        names, first_line = _split_line(file, lines[first_line], delimiter), first_line + 1
    if first_line == len(lines):
        return first_line, names, len(names)
    column_count = len(_split_line(file, lines[first_line], delimiter))
    if has_header and len(names) != column_count:
        raise SourceError(
            f"the header of {file.path} names {len(names)} columns, but line {first_line + 1} has {column_count}. "
            f"Correct one of them, or check the delimiter ({delimiter or 'white space'!r})."
        )
    return first_line, names if len(names) == column_count else [], column_count


def _read_first_lines(file: MappedFile, line_index: LineIndex) -> tuple[list[str], int]:
    """Return the first lines of a file, and how many of them are comments.

    These are the comments at the top and at least two more lines, if there are any. Read few lines at a time, because
    lines may be long.
    """
    lines, count = list[str](), min(line_index.count, _MAX_COMMENT_LINES + 2)
    while True:
        stop = min(len(lines) + line_index.step, count)
        lines += [line.rstrip("\r") for line in line_index.read(file, len(lines), stop)]
        comments = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        if len(lines) >= min(comments + 2, count):
            return lines, comments


def _split_line(file: MappedFile, line: str, delimiter: str | None) -> list[str]:
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
