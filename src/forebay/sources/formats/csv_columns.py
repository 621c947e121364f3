"""Assignment of table columns to leaves, and conversion of lines to records.

A column with the name of a scalar leaf goes to that leaf. The other leaves get the other columns in order. Without a
spec, all columns form one float64 array.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.spec import Array, ArraySpec, Structure, Tree, as_specs
from forebay.errors import SourceError, SpecError

__all__ = ["CsvColumns", "assign_columns"]

_MAX_SHOWN_CHARACTERS = 60  # characters of a bad line that an error message shows


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Converts lines of a table to records with one field per leaf."""

    path: Path
    first_line: int  # first line of data, counted from 0
    delimiter: str | None  # None for white space
    column_count: int  # columns in the file
    # Columns in the order of the leaves; None for all columns in the order of the file.
    selected_columns: tuple[int, ...] | None
    specs: tuple[ArraySpec, ...]
    structure: Structure

    @property
    def record(self) -> np.dtype[Any]:
        return np.dtype([(f"leaf{number}", spec.dtype, spec.shape) for number, spec in enumerate(self.specs)])

    def parse(self, rows: Sequence[int], lines: Sequence[str]) -> Array:
        """Convert lines to records.

        `rows` are the row numbers of the lines, for error messages.
        """
        if not any(map(self._is_risky_line, lines)):
            try:
                return self._load_records(lines)
            except ValueError:
                pass  # the loop below finds the bad line
        for row, line in zip(rows, lines, strict=True):
            self._validate_line(row, line)
        return self._load_records(lines)

    def _load_records(self, lines: Sequence[str]) -> Array:
        return np.loadtxt(
            lines, self.record, comments=None, delimiter=self.delimiter, usecols=self.selected_columns, ndmin=1
        )

    def _is_risky_line(self, line: str) -> bool:
        """Return whether `numpy.loadtxt` might misread a line without an error."""
        if '"' in line or not line or line.isspace():
            return True
        # With `usecols`, loadtxt accepts lines with more columns.
        return self.selected_columns is not None and len(line.split(self.delimiter)) != self.column_count

    def _validate_line(self, row: int, line: str) -> None:
        if not line.strip():
            raise self._bad_line_error(row, line, "it is empty", "Remove it.")
        if '"' in line:
            raise self._bad_line_error(row, line, "it has quoted fields", "Write plain numbers without quotes.")
        column_count = len(line.split(self.delimiter))
        if column_count != self.column_count:
            reason = f"it has {column_count} columns, not {self.column_count}"
            raise self._bad_line_error(row, line, reason, "Correct it, or check delimiter=.")
        try:
            self._load_records([line])
        except ValueError as error:
            reason = str(error).partition(" at row")[0]
            advice = "Correct it, or check delimiter=, header= and spec=. Pass a table with text to fb.from_frame."
            raise self._bad_line_error(row, line, reason, advice) from error

    def _bad_line_error(self, row: int, line: str, reason: str, advice: str) -> SourceError:
        excerpt = line.rstrip("\r")
        excerpt = excerpt if len(excerpt) <= _MAX_SHOWN_CHARACTERS else excerpt[:_MAX_SHOWN_CHARACTERS] + "..."
        return SourceError(f"{self.path}, line {self.first_line + row + 1}, {excerpt!r}: {reason}. {advice}")


def assign_columns(
    path: Path, names: Sequence[str], column_count: int, spec: Tree | None
) -> tuple[tuple[int, ...] | None, tuple[ArraySpec, ...], Structure]:
    """Assign the columns of a table to the leaves of a spec.

    Return the columns in the order of the leaves, the specs and their structure. The columns are None if the leaves use
    all columns in the order of the file.
    """
    if spec is None:
        return None, (ArraySpec((column_count,), np.float64),), Structure(None)
    specs, structure = as_specs(spec)
    widths = [_count_columns(path, leaf, name) for leaf, name in zip(specs, structure.paths, strict=True)]
    named_columns = _find_named_columns(path, names, specs, structure)
    other_columns = iter([column for column in range(column_count) if column not in named_columns.values()])
    columns_of_leaves = [
        [named_columns[leaf]] if leaf in named_columns else list(islice(other_columns, widths[leaf]))
        for leaf in range(len(specs))
    ]
    lacks_columns = any(len(columns) < width for columns, width in zip(columns_of_leaves, widths, strict=True))
    # If every leaf gets a column by name, the other columns are skipped. Otherwise every column must have a leaf.
    if lacks_columns or (len(named_columns) < len(specs) and next(other_columns, None) is not None):
        raise SpecError(
            f"{path} has {column_count} columns, but spec= has places for {sum(widths)}: {', '.join(map(str, specs))}. "
            "Assign every column to a leaf, or make every leaf a scalar with the name of a column."
        )
    selected_columns = tuple(chain(*columns_of_leaves))
    return None if selected_columns == tuple(range(column_count)) else selected_columns, specs, structure


def _count_columns(path: Path, leaf: ArraySpec, name: str) -> int:
    leaf.check(name)
    if leaf.ragged or leaf.nbytes == 0:
        raise SpecError(f"{name!r} is {leaf}. Give each leaf of {path} a fixed number of columns, at least one.")
    return math.prod(length or 0 for length in leaf.shape)


def _find_named_columns(
    path: Path, names: Sequence[str], specs: Sequence[ArraySpec], structure: Structure
) -> dict[int, int]:
    """Find the column with the name of each scalar leaf.

    Return a dict from leaf number to column number. It omits leaves without such a column.
    """
    named_columns = {}
    for leaf, (spec, name) in enumerate(zip(specs, structure.paths, strict=True)):
        if spec.shape == () and name in names:
            if names.count(name) > 1:
                raise SpecError(f"{path} has several columns named {name!r}. Give them different names.")
            named_columns[leaf] = names.index(name)
    return named_columns
