"""`.csv` and `.txt` files as a source: tables of numbers, with or without a header."""

import csv
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs
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
    next line is a header if it has text, and no number or date. If all leaves hold text, the header must name one of
    them.
    Quoted fields in rows raise an error.

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
    specs, structure = as_specs(spec) if spec is not None else ((), Structure(None))
    first_lines = _FirstLines(file, delimiter, tuple(specs), structure.paths)
    first_line, names, column_count = _read_header(first_lines, line_index, header)
    selected_columns, specs, structure = assign_columns(file.path, names, column_count, spec)
    columns = CsvColumns(file.path, first_line, delimiter, column_count, selected_columns, specs, structure)
    return TableSource(file, line_index, columns, max_held_nbytes)


def _read_header(first_lines: "_FirstLines", line_index: LineIndex, header: Header) -> tuple[int, list[str], int]:
    """Return the number of the first data line, the column names and the column count.

    The list of names is empty if neither a header nor a comment names the columns.
    """
    file, split = first_lines.file, first_lines.split
    lines, first_line = _read_first_lines(file, line_index)
    if first_line > _MAX_COMMENT_LINES:
        raise SourceError(
            f"the first {first_line} lines of {file.path} begin with '#', so it has no table. Check the file."
        )
    # numpy.savetxt(header=...) may write the names in the last comment line.
    names = split(lines[first_line - 1].lstrip("# ")) if first_line else []
    if first_line == len(lines):
        return first_line, names, len(names)
    has_header = header == "present" or (header == "auto" and first_lines.is_header(lines[first_line]))
    if has_header:
        names, first_line = split(lines[first_line]), first_line + 1
    if first_line == len(lines):
        return first_line, names, len(names)
    column_count = len(split(lines[first_line]))
    if has_header and len(names) != column_count:
        raise SourceError(
            f"the header of {file.path} names {len(names)} columns, but line {first_line + 1} has {column_count}. "
            f"Correct one of them, or check the delimiter ({first_lines.delimiter or 'white space'!r})."
        )
    return first_line, names if len(names) == column_count else [], column_count


@dataclass(frozen=True, slots=True)
class _FirstLines:
    """Splits the first lines of a table, and finds its header."""

    file: MappedFile
    delimiter: str | None  # None for white space
    leaves: tuple[ArraySpec, ...]  # of spec=
    leaf_names: tuple[str, ...]

    def split(self, line: str) -> list[str]:
        if self.delimiter is None:
            return line.split()
        try:
            return [name.strip() for name in next(csv.reader([line], delimiter=self.delimiter), [])]
        except csv.Error as error:
            raise SourceError(
                f"{self.file.path} cannot be split into columns at {line[:60]!r}: {error}. Correct that line."
            ) from error

    def is_header(self, line: str) -> bool:
        """Return whether a line is a header: it has text, and no number or date.

        Raise SourceError if the line may also be a row, because all leaves hold text.
        """
        fields = line.split(self.delimiter)
        if any(map(self._is_value, fields)) or not "".join(fields).strip():
            return False
        holds_text = bool(self.leaves) and all(leaf.dtype.kind in "SU" for leaf in self.leaves)
        if holds_text and not set(self.split(line)) & set(self.leaf_names):
            raise SourceError(
                f"{self.file.path} begins with {line[:60]!r}, which may be a header or a row, because all leaves hold "
                "text. Pass header='present' or header='absent'."
            )
        return True

    def _is_value(self, field: str) -> bool:
        """Return whether `numpy.loadtxt` reads the field as a number, or as a date of a leaf with dates."""
        try:
            float(field)
        except ValueError:
            dtypes = {leaf.dtype for leaf in self.leaves if leaf.dtype.kind in "cmM"}
            return bool(field.strip()) and any(_can_load(field, self.delimiter, dtype) for dtype in dtypes)
        return "_" not in field  # only Python accepts underscores, as in 1_000


def _can_load(field: str, delimiter: str | None, dtype: np.dtype[Any]) -> bool:
    try:
        np.loadtxt([field], dtype, comments=None, delimiter=delimiter)
    except ValueError:
        return False
    return True


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
