"""Rows that fail, and the good rows of their batch that replace them."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from forebay.core.rows import Rows, row_array
from forebay.core.spec import Array
from forebay.errors import SourceError

__all__ = [
    "SOURCE",
    "ErrorLimit",
    "RowRepair",
    "SkippedRow",
    "UnreadableRowsError",
    "describe_error",
    "find_replacements",
    "gather_readable",
    "raise_unreadable",
]

SOURCE = -1  # `SkippedRow.transform` of a row that the source could not read
MAX_ERROR_LENGTH = 200  # characters of an error that `stats()` shows


class ErrorLimit(NamedTuple):
    """How many rows may fail."""

    name: str  # of the map, or of the function that made the source
    max_errors: float  # largest share of the received rows


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row for which a map failed, or which the source could not read. Another row of its batch has replaced it."""

    row: int  # index in its batch or group; in the reports of a feed, the row number in the source
    transform: int  # index of the map in the pipeline, or SOURCE
    kind: str  # name of the exception class
    error: str  # the exception class and its message
    name: str = ""  # of a row that the source could not read, such as the path of a file

    @classmethod
    def of(cls, row: int, transform: int, error: Exception, name: str = "") -> "SkippedRow":
        return cls(row, transform, type(error).__qualname__, describe_error(error, name), name)

    def shifted(self, rows: int) -> "SkippedRow":
        """Return the same row for a group in which `rows` rows come before its batch."""
        return replace(self, row=self.row + rows)

    def __str__(self) -> str:
        return f"row {self.row} ({self.name})" if self.name else f"row {self.row}"


class UnreadableRowsError(SourceError):
    """Raised by `AbstractSource.gather` after it has written all other rows, if the source has an `error_limit`.

    The `row` of each unreadable row is its index in the gathered rows.
    """

    def __init__(self, rows: Sequence[SkippedRow]) -> None:
        self.rows = list(rows)
        super().__init__(
            f"{rows[0].name or rows[0]}: {rows[0].error} on_error='skip' replaces rows of batches only. Leave this row "
            "out, for example with select()."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rows,)


def gather_readable(source: Any, rows: Rows, out: Sequence[Array]) -> list[SkippedRow]:
    """Gather rows of a source, and return those that it could not read. Their values in `out` are arbitrary."""
    try:
        source.gather(rows, out)
    except UnreadableRowsError as error:
        return error.rows
    return []


def raise_unreadable(rows: Iterable[SkippedRow]) -> None:
    """Raise UnreadableRowsError for these rows, in order and each once. Do nothing if there are none."""
    by_row = {row.row: row for row in rows}
    if by_row:
        raise UnreadableRowsError([by_row[row] for row in sorted(by_row)])


def find_replacements(failed: Sequence[int], rows: int) -> dict[int, int]:
    """Return the nearest good row of a batch for each failed row; an empty dict if all rows failed.

    Of two rows at the same distance, the earlier one is used.

    >>> find_replacements([0, 2, 4, 5], 6)
    {0: 1, 2: 1, 4: 3, 5: 3}
    """
    is_failed = set(failed)
    good = [row for row in range(rows) if row not in is_failed]
    return {row: _nearest(good, row) for row in failed} if good else {}


def _nearest(numbers: Sequence[int], number: int) -> int:
    """Return the nearest of sorted numbers; of two, the smaller one."""
    place = bisect_left(numbers, number)
    neighbours = numbers[max(0, place - 1) : place + 1]
    return min(neighbours, key=lambda neighbour: abs(neighbour - number))


@dataclass(frozen=True, slots=True)
class RowRepair:
    """The unreadable rows of a group, and the good rows of their batches that replace them."""

    skipped: list[SkippedRow] = field(default_factory=list)  # in the batches before the first one without a good row
    replacements: dict[int, int] = field(default_factory=dict)  # index of each of these rows -> index of a good row
    batches: int = 0  # number of the first batch without a good row, if there is one
    error: SourceError | None = None  # of this batch; None if all batches have a good row

    @classmethod
    def of(cls, failed: Sequence[SkippedRow], rows: int, batch_rows: int) -> "RowRepair":
        """Return the repair of a group of `rows` rows."""
        skipped, replacements = list[SkippedRow](), dict[int, int]()
        in_order = sorted(failed, key=lambda row: row.row)
        for batch, group in groupby(in_order, key=lambda row: row.row // batch_rows):
            start, in_batch = batch * batch_rows, list(group)
            length = min(batch_rows, rows - start)
            found = find_replacements([row.row - start for row in in_batch], length)
            if not found:
                return cls(skipped, replacements, batch, _unreadable_batch(in_batch[0], length))
            skipped += in_batch
            replacements |= {start + row: start + good for row, good in found.items()}
        return cls(skipped, replacements)

    def apply(self, leaves: Sequence[Array]) -> None:
        """Copy the good rows over the rows that they replace."""
        if self.replacements:
            targets, sources = list(self.replacements), list(self.replacements.values())
            for leaf in leaves:
                leaf[targets] = leaf[sources]

    def apply_to_numbers(self, rows: Rows) -> Rows:
        """Return the row numbers of a group, with those of the good rows for the rows that they replace."""
        if not self.replacements:
            return rows
        numbers = row_array(rows).copy()
        self.apply([numbers])
        return numbers

    def skipped_before(self, row: int) -> list[SkippedRow]:
        return [skipped for skipped in self.skipped if skipped.row < row]


def _unreadable_batch(first: SkippedRow, rows: int) -> SourceError:
    return SourceError(
        f"on_error='skip' found no readable row among the {rows} rows of a batch, so no row can replace the others. "
        f"Correct or remove these rows, or use larger batches. The first one is {first.name or first}: {first.error}"
    )


def describe_error(error: Exception, name: str = "") -> str:
    """Return the class and the message of an error, on one line and not too long.

    If the message begins with `name`, leave out the name.

    >>> describe_error(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    kind = type(error).__qualname__
    try:
        message = str(error)
    except Exception:  # the `__str__` of a user's exception
        return kind
    text = " ".join(f"{kind}: {message.removeprefix(name)}".split())
    return text if len(text) <= MAX_ERROR_LENGTH else f"{text[:MAX_ERROR_LENGTH]}..."
