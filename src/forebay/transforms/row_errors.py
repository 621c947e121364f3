"""Rows that a map with `on_error="skip"` cannot process: their replacements, their counts and their limit."""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from forebay.errors import TransformError
from forebay.transforms.batch_context import SkippedRow, describe_error

__all__ = ["MIN_COUNTED_ROWS", "SkippedRowLog", "replace_failed_rows"]

# The share of errors is computed over at least this many rows, so that one early error is allowed.
MIN_COUNTED_ROWS = 1000
SHOWN_ROWS = 5  # skipped rows of each map that `stats()` shows

_log = logging.getLogger(__name__)


def replace_failed_rows(rows: Sequence[Any], name: str, first_error: Exception) -> list[Any]:
    """Return the rows, with None replaced by the nearest row that is not None.

    Of two rows at the same distance, the earlier one is used. Raise TransformError if all rows are None. The error
    mentions the `name` of the map and its first error.

    >>> replace_failed_rows([None, "a", None, "b", None, None], "map(f)", ValueError())
    ['a', 'a', 'a', 'b', 'b', 'b']
    """
    good = [index for index, row in enumerate(rows) if row is not None]
    if not good:
        raise TransformError(
            f"{name} failed for all {len(rows)} rows of a batch, so no row can replace them. Correct the function or "
            f"the rows. The first error was {describe_error(first_error)}"
        ) from first_error
    return [rows[_nearest(good, index)] if row is None else row for index, row in enumerate(rows)]


def _nearest(numbers: Sequence[int], number: int) -> int:
    """Return the nearest of sorted numbers; of two, the smaller one."""
    place = bisect_left(numbers, number)
    neighbours = numbers[max(0, place - 1) : place + 1]
    return min(neighbours, key=lambda neighbour: abs(neighbour - number))


class SkippedRowLog:
    """Counts the skipped rows of each map in the order in which the consumer receives them.

    The consumer's thread adds each group that it receives. So the counts do not depend on the speed of the threads.
    """

    def __init__(self, maps: dict[int, tuple[str, float]]) -> None:
        """`maps` has the name and the limit `max_errors` of each map that skips rows, by its index."""
        self._maps = maps
        self._received_rows = 0
        self._counts = dict.fromkeys(maps, 0)
        self._first: dict[int, list[SkippedRow]] = {index: [] for index in maps}
        self._logged_kinds: set[tuple[int, str]] = set()

    def add(self, skipped: Sequence[SkippedRow], rows: int) -> None:
        """Count a group of `rows` rows. Raise TransformError if a map has failed for too many rows."""
        self._received_rows += rows
        for row in skipped:
            self._counts[row.transform] += 1
            if len(self._first[row.transform]) < SHOWN_ROWS:
                self._first[row.transform].append(row)
            self._log_kind(row)
        for index in {row.transform for row in skipped}:
            self._check_limit(index)

    def counts(self) -> dict[str, Any]:
        """Return the numbers for `stats()`: the count of all maps, and the first rows of each map."""
        first = [
            {"map": name, "row": row.row, "error": row.error}
            for index, (name, _) in self._maps.items()
            for row in self._first[index]
        ]
        return {"count": sum(self._counts.values()), "received_rows": self._received_rows, "first": first}

    def _log_kind(self, row: SkippedRow) -> None:
        """Log the first error of each class."""
        if (row.transform, row.kind) not in self._logged_kinds:
            self._logged_kinds.add((row.transform, row.kind))
            name = self._maps[row.transform][0]
            rest = f"further {row.kind} errors of this map are counted in stats(), but not logged"
            _log.warning("%s skipped row %d: %s; %s.", name, row.row, row.error, rest)

    def _check_limit(self, index: int) -> None:
        (name, max_errors), count = self._maps[index], self._counts[index]
        if count > max_errors * max(self._received_rows, MIN_COUNTED_ROWS):
            first = self._first[index][0]
            raise TransformError(
                f"{name} failed for {count} of {self._received_rows} rows, more than max_errors={max_errors:g} allows "
                f"(the limit is a share of at least {MIN_COUNTED_ROWS} rows). The first error was in row "
                f"{first.row}: {first.error}. Correct the rows or the function, or pass a larger max_errors."
            )
