"""Which columns of a text table go to which leaf, and how lines become records.

Columns named like a scalar leaf go to it; the others are dealt out to the other leaves in order. Without a spec all
columns are one float64 array.
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

__all__ = ["Columns", "deal_columns"]

_SHOWN = 60  # characters of a bad line that an error repeats


@dataclass(frozen=True, slots=True)
class Columns:
    """How a line becomes a record: one field a leaf, packed."""

    path: Path
    first_line: int  # where the data begins, counted from 0
    delimiter: str | None
    count: int  # in the file
    chosen: tuple[int, ...] | None  # columns in the order of the leaves; None takes all as they stand
    specs: tuple[ArraySpec, ...]
    structure: Structure

    @property
    def record(self) -> np.dtype[Any]:
        return np.dtype([(f"leaf{place}", spec.dtype, spec.shape) for place, spec in enumerate(self.specs)])

    def parse(self, rows: Sequence[int], lines: Sequence[str]) -> Array:
        """Lines as records; `rows` are their numbers, for the error that names a bad one."""
        if not any(map(self._is_suspect, lines)):
            try:
                return self._parse(lines)
            except ValueError:
                pass  # some line is bad: found below
        for row, line in zip(rows, lines, strict=True):
            self._check(row, line)
        return self._parse(lines)

    def _parse(self, lines: Sequence[str]) -> Array:
        return np.loadtxt(lines, self.record, comments=None, delimiter=self.delimiter, usecols=self.chosen, ndmin=1)

    def _is_suspect(self, line: str) -> bool:
        """Whether the parser would pass over a line in silence, or read it otherwise than other programs do."""
        if '"' in line or not line or line.isspace():
            return True
        # Where columns are chosen, the parser does not mind that there are more of them.
        return self.chosen is not None and len(line.split(self.delimiter)) != self.count

    def _check(self, row: int, line: str) -> None:
        if not line.strip():
            raise self._bad(row, line, "it is empty", "Remove it.")
        if '"' in line:
            raise self._bad(row, line, "it has quoted fields", "Write plain numbers, one row a line, without quotes.")
        found = len(line.split(self.delimiter))
        if found != self.count:
            raise self._bad(row, line, f"it has {found} columns, not {self.count}", "See whether delimiter= is right.")
        try:
            self._parse([line])
        except ValueError as error:
            told = str(error).partition(" at row")[0]
            raise self._bad(row, line, told, "Mend it, or see whether delimiter=, header= and spec= fit.") from error

    def _bad(self, row: int, line: str, why: str, remedy: str) -> SourceError:
        shown = line.rstrip("\r")
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        return SourceError(f"{self.path}, line {self.first_line + row + 1}, {shown!r}: {why}. {remedy}")


def deal_columns(
    path: Path, names: Sequence[str], count: int, spec: Tree | None
) -> tuple[tuple[int, ...] | None, tuple[ArraySpec, ...], Structure]:
    """The columns in the order of the leaves, and the leaves."""
    if spec is None:
        return None, (ArraySpec((count,), np.float64),), Structure(None)
    specs, structure = as_specs(spec)
    widths = [_width(path, leaf, name) for leaf, name in zip(specs, structure.paths, strict=True)]
    named = _find_named(path, names, specs, structure)
    dealt = iter([column for column in range(count) if column not in named.values()])
    chosen = [[named[place]] if place in named else list(islice(dealt, widths[place])) for place in range(len(specs))]
    short = any(len(columns) < width for columns, width in zip(chosen, widths, strict=True))
    # Where every leaf was found by name, the other columns were not asked for. Otherwise all must be used up.
    if short or (len(named) < len(specs) and next(dealt, None) is not None):
        raise SpecError(
            f"{path} has {count} columns, but spec= has places for {sum(widths)}: {', '.join(map(str, specs))}. "
            "Give every column a place, or every leaf the name of a column."
        )
    return _unless_all(tuple(chain(*chosen)), count), specs, structure


def _unless_all(chosen: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    return None if chosen == tuple(range(count)) else chosen


def _width(path: Path, leaf: ArraySpec, name: str) -> int:
    leaf.check(name)
    if leaf.ragged or leaf.nbytes == 0:
        raise SpecError(f"{name!r} is {leaf}: a leaf of {path} needs a fixed number of columns, at least one.")
    return math.prod(length or 0 for length in leaf.shape)


def _find_named(path: Path, names: Sequence[str], specs: Sequence[ArraySpec], structure: Structure) -> dict[int, int]:
    """Columns that carry the name of a scalar leaf, by the place of the leaf."""
    found = {}
    for place, (spec, name) in enumerate(zip(specs, structure.paths, strict=True)):
        if spec.shape == () and name in names:
            if names.count(name) > 1:
                raise SpecError(f"{path} has several columns called {name!r}: nothing tells which one is meant.")
            found[place] = names.index(name)
    return found
