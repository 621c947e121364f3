"""Errors of maps: notes on their cause, and the rows that `on_error="skip"` replaces."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forebay.core.skipped_rows import SOURCE, ErrorLimit, SkippedRow, describe_error, find_replacements
from forebay.errors import SourceError, TransformError

__all__ = ["MIN_COUNTED_ROWS", "SkippedRowLog", "map_error_notes", "replace_failed_rows"]

# The share of errors is computed over at least this many rows, so that one early error is allowed.
MIN_COUNTED_ROWS = 1000
SHOWN_ROWS = 5  # skipped rows of each map that `stats()` shows

# Methods and attributes of tensors that NumPy arrays and scalars lack.
_TENSOR_ERROR = re.compile(
    r"'numpy\.\w+' object has no attribute '(cpu|cuda|device|float|long|numpy|permute|to|unsqueeze|view_as)'"
)

_log = logging.getLogger(__name__)


def map_error_notes(error: Exception) -> Iterator[str]:
    """Yield notes for an error that shows a wrong idea of what a map receives."""
    text = str(error)
    if "PRNG key" in text:
        yield "rng is a numpy.random.Generator, not a key of jax.random. Write rng.normal(...)."
    if isinstance(error, AttributeError) and (found := _TENSOR_ERROR.search(text)):
        yield (
            f"A map receives NumPy arrays, so .{found[1]} does not work. Batches of feed(...) are arrays of the "
            "framework, on its device. Leave out moves to the device. Write NumPy code, or use "
            f".{found[1]} in the loop."
        )
    if isinstance(error, TypeError) and "<class 'dict'>" in text:
        yield (
            "A map receives the whole row, here a dict of its fields. Write for example "
            "map(lambda row: {**row, 'image': function(row['image'])})."
        )


def replace_failed_rows(rows: Sequence[Any], name: str, first_error: Exception) -> list[Any]:
    """Return the rows, with each None replaced by the nearest row that is not None.

    Of two rows at the same distance, the earlier one is used. Raise TransformError if all rows are None. The error
    mentions the `name` of the map and its first error.

    >>> replace_failed_rows([None, "a", None, "b", None, None], "map(f)", ValueError())
    ['a', 'a', 'a', 'b', 'b', 'b']
    """
    failed = [index for index, row in enumerate(rows) if row is None]
    if len(failed) == len(rows):
        raise TransformError(
            f"{name} failed for all {len(rows)} rows of a batch, so no row can replace them. Correct the function or "
            f"the rows. The first error was {describe_error(first_error)}"
        ) from first_error
    replacements = find_replacements(failed, len(rows))
    return [rows[replacements.get(index, index)] for index in range(len(rows))]


class SkippedRowLog:
    """Counts the skipped rows of the source and of each map.

    The consumer's thread adds each group when it receives the group. So the counts do not depend on the speed of the
    worker threads.
    """

    def __init__(self, limits: Mapping[int, ErrorLimit], find_row: Callable[[int], int] = int) -> None:
        """Start with zero rows.

        Args:
            limits: The error limit of each map that skips rows, by the index of the map. The key SOURCE has the limit
                of the source.
            find_row: Converts a row number of the pipeline's order to the number that the log shows.
        """
        self._limits, self._find_row = limits, find_row
        self._received_rows = 0
        self._counts = dict.fromkeys(limits, 0)
        self._first: dict[int, list[SkippedRow]] = {index: [] for index in limits}
        self._logged_kinds: set[tuple[int, str]] = set()

    def add(self, skipped: Sequence[SkippedRow], rows: int) -> None:
        """Count a group of `rows` rows.

        Raise TransformError if a map failed for too many rows, or SourceError if the source failed for too many.
        """
        self._received_rows += rows
        for skipped_row in skipped:
            row = replace(skipped_row, row=self._find_row(skipped_row.row))
            self._counts[row.transform] += 1
            if len(self._first[row.transform]) < SHOWN_ROWS:
                self._first[row.transform].append(row)
            self._log_kind(row)
        for index in {row.transform for row in skipped}:
            self._check_limit(index)

    def counts(self) -> dict[str, Any]:
        """Return the dict for `stats()`.

        It has the number of skipped rows, the number of received rows, and the first skipped rows of the source and of
        each map.
        """
        first = [
            {"map": limit.name, "row": row.row, **({"name": row.name} if row.name else {}), "error": row.error}
            for index, limit in self._limits.items()
            for row in self._first[index]
        ]
        return {"count": sum(self._counts.values()), "received_rows": self._received_rows, "first": first}

    def _log_kind(self, row: SkippedRow) -> None:
        """Log the first error of each class."""
        if (row.transform, row.kind) not in self._logged_kinds:
            self._logged_kinds.add((row.transform, row.kind))
            name, owner = self._limits[row.transform].name, "source" if row.transform == SOURCE else "map"
            rest = f"further {row.kind} errors of this {owner} are counted in stats(), but not logged"
            _log.warning("%s skipped %s: %s; %s.", name, row, row.error, rest)

    def _check_limit(self, index: int) -> None:
        (name, max_errors), count = self._limits[index], self._counts[index]
        if count > max_errors * max(self._received_rows, MIN_COUNTED_ROWS):
            first, is_source = self._first[index][0], index == SOURCE
            raise (SourceError if is_source else TransformError)(
                f"{name} failed for {count} of {self._received_rows} rows, more than max_errors={max_errors:g} allows "
                f"(the limit is a share of at least {MIN_COUNTED_ROWS} rows). The first error was in {first}: "
                f"{first.error}. Correct the rows{'' if is_source else ' or the function'}, or pass a larger "
                "max_errors."
            )
