"""Rows that a source cannot read or for which a map fails, and their replacements."""

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

    name: str  # name of the map, or of the function that made the source
    max_errors: float  # largest share of the received rows that may fail


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row for which a map failed, or which the source could not read.

    A good row of its batch replaces it.
    """

    row: int  # index in its batch or group; in the reports of a feed, the row number in the source
    transform: int  # index of the map in the pipeline, or SOURCE
    kind: str  # name of the exception class
    error: str  # the exception class and its message
    name: str = ""  # where an unreadable row is stored, such as the path of a file; empty for a row of a map

    @classmethod
    def of(cls, row: int, transform: int, error: Exception, name: str = "") -> "SkippedRow":
        return cls(row, transform, type(error).__qualname__, describe_error(error, name), name)

    def shifted(self, rows: int) -> "SkippedRow":
        """Return the row with its index in a group with `rows` rows before its batch."""
        return replace(self, row=self.row + rows)

    def __str__(self) -> str:
        return f"row {self.row} ({self.name})" if self.name else f"row {self.row}"


class UnreadableRowsError(SourceError):
    """`AbstractSource.gather` could not read some rows, but has written all readable rows.

    Only sources with an `error_limit` raise this error. The `row` of each of `rows` is its index in the gathered rows.
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
    """Gather rows of a source to `out`; return the rows that it could not read.

    The values of unreadable rows in `out` are arbitrary.
    """
    try:
        source.gather(rows, out)
    except UnreadableRowsError as error:
        return error.rows
    return []


def raise_unreadable(rows: Iterable[SkippedRow]) -> None:
    """Raise UnreadableRowsError for these rows, sorted and without duplicates, if there are any."""
    by_row = {row.row: row for row in rows}
    if by_row:
        raise UnreadableRowsError([by_row[row] for row in sorted(by_row)])


def find_replacements(failed: Sequence[int], rows: int) -> dict[int, int]:
    """Return {failed row: nearest good row} of a batch with `rows` rows.

    The dict is empty if all rows failed. Of two good rows at the same distance, the earlier one is the nearest.

    >>> find_replacements([0, 2, 4, 5], 6)
    {0: 1, 2: 1, 4: 3, 5: 3}
    """
    is_failed = set(failed)
    good = [row for row in range(rows) if row not in is_failed]
    return {row: _nearest(good, row) for row in failed} if good else {}


def _nearest(numbers: Sequence[int], number: int) -> int:
    """Return the nearest of sorted numbers; the smaller number if two are equally near."""
    place = bisect_left(numbers, number)
    neighbours = numbers[max(0, place - 1) : place + 1]
    return min(neighbours, key=lambda neighbour: abs(neighbour - number))


@dataclass(frozen=True, slots=True)
class RowRepair:
    """The unreadable rows of a group, and the good rows that replace them.

    A batch without any good row cannot be repaired. Then the repair covers only the batches before it.
    """

    skipped: list[SkippedRow] = field(default_factory=list)  # unreadable rows of the repaired batches
    replacements: dict[int, int] = field(default_factory=dict)  # index of each skipped row -> index of a good row
    batches: int = 0  # if `error` is set: number of batches before the one without a good row
    error: SourceError | None = None  # why the first batch without a good row fails; None if all have a good row

    @classmethod
    def of(cls, failed: Sequence[SkippedRow], rows: int, batch_rows: int) -> "RowRepair":
        """Return the repair of a group of `rows` rows, in batches of `batch_rows` rows."""
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
        """Overwrite each skipped row with its good row, in the arrays of all leaves."""
        if self.replacements:
            targets, sources = list(self.replacements), list(self.replacements.values())
            for leaf in leaves:
                leaf[targets] = leaf[sources]

    def apply_to_numbers(self, rows: Rows) -> Rows:
        """Return the row numbers of a group, with good rows in place of skipped rows."""
        if not self.replacements:
            return rows
        numbers = row_array(rows).copy()
        self.apply([numbers])
        return numbers

    def skipped_before(self, row: int) -> list[SkippedRow]:
        return [skipped for skipped in self.skipped if skipped.row < row]


def _unreadable_batch(first: SkippedRow, rows: int) -> SourceError:
    return SourceError(
        f"on_error='skip' found no readable row among the {rows} rows of a batch, so it cannot replace them. "
        f"Correct or remove these rows, or use larger batches. The first one is {first.name or first}: {first.error}"
    )


def describe_error(error: Exception, name: str = "") -> str:
    """Return the class and the message of an error in one line of limited length.

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
