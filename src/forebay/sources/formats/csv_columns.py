"""Assignment of table columns to leaves, and conversion of lines to records.

A column with the name of a scalar leaf goes to that leaf. The other columns go to the other leaves in order. Without a
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

_MAX_SHOWN_CHARACTERS = 60  # of a bad line in an error


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """Converts a line to a record with one field for each leaf."""

    path: Path
    first_line: int  # first line of data, counted from 0
    delimiter: str | None
    count: int  # columns in the file
    selected: tuple[int, ...] | None  # columns in the order of the leaves; None for all columns in their order
    specs: tuple[ArraySpec, ...]
    structure: Structure

    @property
    def record(self) -> np.dtype[Any]:
        return np.dtype([(f"leaf{number}", spec.dtype, spec.shape) for number, spec in enumerate(self.specs)])

    def parse(self, rows: Sequence[int], lines: Sequence[str]) -> Array:
        """Convert lines to records.

        `rows` are their row numbers; an error names a bad line by them.
        """
        if not any(map(self._is_suspect, lines)):
            try:
                return self._parse(lines)
            except ValueError:
                pass  # the loop below finds the bad line
        for row, line in zip(rows, lines, strict=True):
            self._validate(row, line)
        return self._parse(lines)

    def _parse(self, lines: Sequence[str]) -> Array:
        return np.loadtxt(lines, self.record, comments=None, delimiter=self.delimiter, usecols=self.selected, ndmin=1)

    def _is_suspect(self, line: str) -> bool:
        """Tell whether `numpy.loadtxt` might misread the line without an error."""
        if '"' in line or not line or line.isspace():
            return True
        # With selected columns, loadtxt accepts lines with more columns.
        return self.selected is not None and len(line.split(self.delimiter)) != self.count

    def _validate(self, row: int, line: str) -> None:
        if not line.strip():
            raise self._bad_line(row, line, "it is empty", "Remove it.")
        if '"' in line:
            raise self._bad_line(row, line, "it has quoted fields", "Write plain numbers without quotes.")
        found = len(line.split(self.delimiter))
        if found != self.count:
            raise self._bad_line(row, line, f"it has {found} columns, not {self.count}", "Check delimiter=.")
        try:
            self._parse([line])
        except ValueError as error:
            reason = str(error).partition(" at row")[0]
            raise self._bad_line(row, line, reason, "Correct it, or check delimiter=, header= and spec=.") from error

    def _bad_line(self, row: int, line: str, reason: str, advice: str) -> SourceError:
        shown = line.rstrip("\r")
        shown = shown if len(shown) <= _MAX_SHOWN_CHARACTERS else shown[:_MAX_SHOWN_CHARACTERS] + "..."
        return SourceError(f"{self.path}, line {self.first_line + row + 1}, {shown!r}: {reason}. {advice}")


def assign_columns(
    path: Path, names: Sequence[str], count: int, spec: Tree | None
) -> tuple[tuple[int, ...] | None, tuple[ArraySpec, ...], Structure]:
    """Assign the columns of a table to the leaves of a spec.

    Return the columns in the order of the leaves (None for all columns), the leaves and their structure.
    """
    if spec is None:
        return None, (ArraySpec((count,), np.float64),), Structure(None)
    specs, structure = as_specs(spec)
    widths = [_count_columns(path, leaf, name) for leaf, name in zip(specs, structure.paths, strict=True)]
    by_name = _find_by_name(path, names, specs, structure)
    unnamed = iter([column for column in range(count) if column not in by_name.values()])
    selected = [
        [by_name[leaf]] if leaf in by_name else list(islice(unnamed, widths[leaf])) for leaf in range(len(specs))
    ]
    is_short = any(len(columns) < width for columns, width in zip(selected, widths, strict=True))
    # If every leaf has the name of a column, the other columns are not needed. Otherwise all must be assigned.
    if is_short or (len(by_name) < len(specs) and next(unnamed, None) is not None):
        raise SpecError(
            f"{path} has {count} columns, but spec= has places for {sum(widths)}: {', '.join(map(str, specs))}. "
            "Give every column a place, or every leaf the name of a column."
        )
    columns = tuple(chain(*selected))
    return None if columns == tuple(range(count)) else columns, specs, structure


def _count_columns(path: Path, leaf: ArraySpec, name: str) -> int:
    leaf.check(name)
    if leaf.ragged or leaf.nbytes == 0:
        raise SpecError(f"{name!r} is {leaf}. Give each leaf of {path} a fixed number of columns, at least one.")
    return math.prod(length or 0 for length in leaf.shape)


def _find_by_name(path: Path, names: Sequence[str], specs: Sequence[ArraySpec], structure: Structure) -> dict[int, int]:
    """Return the columns that have the name of a scalar leaf.

    The keys are the numbers of the leaves.
    """
    found = {}
    for leaf, (spec, name) in enumerate(zip(specs, structure.paths, strict=True)):
        if spec.shape == () and name in names:
            if names.count(name) > 1:
                raise SpecError(f"{path} has several columns named {name!r}. Give them different names.")
            found[leaf] = names.index(name)
    return found
