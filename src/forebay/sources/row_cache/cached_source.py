"""`CachedSource`: the rows of a source after some transforms, computed once and then kept."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from forebay.core.decision import Decision
from forebay.core.rows import Rows, row_array, row_count
from forebay.core.skipped_rows import SkippedRow, gather_readable, raise_unreadable
from forebay.core.source import AbstractSource, Closeable, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, format_nbytes
from forebay.errors import SpecError
from forebay.sources.row_cache.key_checks import CheckedKey, KeyChecks
from forebay.sources.row_cache.planned_reads import PlannedReads
from forebay.sources.row_cache.stored_rows import StoredRows

__all__ = ["CachedSource", "RowTransform", "TransformInto"]

# A gather computes rows in pieces whose temporary arrays have at most this number of bytes. With smaller pieces,
# decoder threads would often wait for the last image of a piece.
PIECE_NBYTES = 16 << 20

# Transforms the leaves of rows, and writes the results to arrays.
TransformInto: TypeAlias = Callable[[list[Array], Sequence[Array]], None]


@dataclass(frozen=True, slots=True)
class RowTransform:
    """How the rows of a source become cached rows."""

    specs: tuple[ArraySpec, ...]  # of the cached rows
    structure: Structure
    apply: TransformInto | None = None  # None: the cached rows are those of the source
    calls_user_code: bool = False  # whether `apply` calls functions of the user


class CachedSource(AbstractSource):
    """Rows of an inner source after transforms. The first gather of a row computes it.

    `StoredRows` stores a fixed set of rows; each gather of another row computes it again. Rows that the inner source
    cannot read are not stored.
    """

    can_prefetch = True

    def __init__(
        self,
        inner: AbstractSource,
        store: StoredRows,
        transform: RowTransform,
        *,
        used_rows: int,
        key: CheckedKey | None = None,
    ) -> None:
        """`used_rows` counts the different rows that the pipeline uses. `key` is None in RAM."""
        self._inner, self._store, self._transform, self._used_rows = inner, store, transform.apply, used_rows
        self._calls_user_code = calls_user_code = transform.calls_user_code
        self._checks = None if key is None else KeyChecks(key, store)
        self.specs, self.structure = transform.specs, transform.structure
        self.read_decision, self.class_names = inner.read_decision, inner.class_names
        self.error_limit, self._unreadable = inner.error_limit, set[int]()
        self.needs_cluster, self.version = inner.needs_cluster, inner.version
        # A feed fills groups of the next epoch in advance if `immutable` is True. Do not allow this if an epoch may
        # complete the cache, because the next epoch then gets a new plan.
        self.immutable = inner.immutable and not calls_user_code and store.capacity < used_rows
        self.row_by_row = inner.row_by_row or calls_user_code
        self.decodes_rows = inner.decodes_rows and not calls_user_code
        # Keep the shuffle blocks of the inner source even if the cache is complete, because the order of `shuffle()`
        # must not depend on what is cached.
        self.shuffle_blocks, self.chunk_policy = inner.shuffle_blocks, inner.chunk_policy
        self.decompressed_nbytes = inner.decompressed_nbytes
        self.scratch_row_nbytes = inner.scratch_row_nbytes + self._temporary_row_nbytes()
        # An inner source that prefetches finds prefetched rows only by the row numbers of a whole group. So a piece is
        # a whole group.
        self._piece_rows = 1 << 62
        if not inner.can_prefetch:
            self._piece_rows = max(1, PIECE_NBYTES // max(1, self.scratch_row_nbytes))
            self.max_scratch_nbytes = max(PIECE_NBYTES, self.scratch_row_nbytes)
        self._planned_reads: list[PlannedReads] = []
        self._plan_version = 0
        self._hits = _Count()

    def _temporary_row_nbytes(self) -> int:
        """Return the bytes of temporary arrays for each row.

        With a transform, these are the row before the transform, its result, and a copy of the result. If some rows may
        be unreadable, the readable rows are copied before the transform, and have their own array of results.
        """
        output_nbytes = sum(spec.nbytes for spec in self.specs)
        copies = 1 if self.error_limit is None else 2
        if self._transform is None:
            return copies * output_nbytes
        return copies * sum(spec.nbytes for spec in self._inner.specs) + (copies + 1) * output_nbytes

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def infers_specs(self) -> bool:
        return False  # all cached rows have one shape

    @property
    def stored_rows(self) -> tuple[Sequence[ArraySpec], Structure]:
        return self._inner.stored_rows

    @property
    def plan_version(self) -> int:
        return self._plan_version

    @property
    def is_complete(self) -> bool:
        """Whether all rows that the pipeline uses are stored."""
        return self._store.count == self._used_rows

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if self._plan_version:
            self._hits.add(row_count(rows))
            self._store.gather(rows, out)
            return
        numbers, failed = row_array(rows), list[SkippedRow]()
        is_stored = self._find_stored(rows, numbers)
        self._hits.add(int(np.count_nonzero(is_stored)))
        if is_stored.all():
            self._store.gather(rows, out)
        elif self._transform is None and not is_stored.any():
            failed = self._compute(rows, out)
        else:
            for start in range(0, len(numbers), self._piece_rows):
                piece = slice(start, start + self._piece_rows)
                found = self._gather_piece(numbers[piece], is_stored[piece], [leaf[piece] for leaf in out])
                failed += [row.shifted(start) for row in found]
        self._notice_completion()
        raise_unreadable(failed)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        if self._transform is None and not self.is_complete:
            return self._inner.gather_leaves(leaves, rows)  # the inner source may read only these leaves
        return super().gather_leaves(leaves, rows)

    def _gather_piece(self, numbers: Array, is_stored: Array, out: Sequence[Array]) -> list[SkippedRow]:
        """Gather the stored rows and compute the others. Return the unreadable rows."""
        if not is_stored.any():
            return self._compute(numbers, out)
        failed = list[SkippedRow]()
        for positions, gather in (
            (np.flatnonzero(is_stored), self._gather_stored),
            (np.flatnonzero(~is_stored), self._compute),
        ):
            found = [spec.empty(len(positions)) for spec in self.specs]
            failed += [replace(row, row=int(positions[row.row])) for row in gather(numbers[positions], found)]
            for leaf, values in zip(out, found, strict=True):
                leaf[positions] = values
        return failed

    def _gather_stored(self, numbers: Array, out: Sequence[Array]) -> list[SkippedRow]:
        self._store.gather(numbers, out)
        return []

    def _compute(self, rows: Rows, out: Sequence[Array]) -> list[SkippedRow]:
        """Compute rows and store them. Return the rows that the inner source could not read."""
        numbers = row_array(rows)
        if len(numbers) == 0:
            return []
        if self._checks is not None:
            self._checks.check_data()
        with _explain_unequal_rows():
            leaves = out if self._transform is None else [spec.empty(len(numbers)) for spec in self._inner.specs]
            failed = gather_readable(self._inner, rows, leaves)
            if failed:
                self._compute_readable(numbers, leaves, out, [row.row for row in failed])
                return failed
            if self._transform is not None:
                self._transform(list(leaves), out)
        self._put(numbers, out)
        return []

    def _compute_readable(
        self, numbers: Array, leaves: Sequence[Array], out: Sequence[Array], failed: list[int]
    ) -> None:
        """Compute and store all rows except the `failed` ones.

        Maps must not see the values of failed rows.
        """
        self._unreadable.update(numbers[failed].tolist())
        readable = np.delete(np.arange(len(numbers)), failed)
        results = [leaf[readable] for leaf in leaves]
        if self._transform is not None and len(readable):
            inputs, results = results, [spec.empty(len(readable)) for spec in self.specs]
            self._transform(inputs, results)
            for leaf, values in zip(out, results, strict=True):
                leaf[readable] = values
        self._put(numbers[readable], results)

    def _put(self, numbers: Array, leaves: Sequence[Array]) -> None:
        """Store rows. If a check of the key is due, check it first."""
        if self._unreadable:
            self._unreadable.difference_update(numbers.tolist())
        if self._store.count >= self._store.capacity:  # no row may be stored, so do not spend time on a check
            return
        if self._checks is None:
            self._store.put(numbers, leaves)
        else:
            self._checks.put(numbers, leaves, np.array(list(self._unreadable), np.int64))

    def _notice_completion(self) -> None:
        """Behave like arrays in memory once all rows are stored.

        A feed then makes a new plan for the next epoch.
        """
        if self.is_complete and self._plan_version == 0:
            self.immutable, self.row_by_row, self.decodes_rows = True, False, False
            self.scratch_row_nbytes = 0
            self._plan_version = 1

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        """Let the inner source prefetch the rows of upcoming groups that are not stored."""
        if self.is_complete:
            return None
        reads = PlannedReads(self._store, len(self), keeps_slices=self._transform is None)
        prefetch = self._inner.prefetch(reads.plan(upcoming))
        if prefetch is None:
            return None
        reads.prefetch = prefetch
        self._planned_reads = [*(other for other in self._planned_reads if not other.is_closed), reads]
        return reads

    def _find_stored(self, rows: Rows, numbers: Array) -> Array:
        """Return which rows to read from the cache instead of the inner source.

        An inner source finds prefetched rows by the row numbers of a group. So read the planned rows from it, even if
        some of them are stored by now.
        """
        for reads in self._planned_reads:
            is_stored = reads.take(rows, numbers)
            if is_stored is not None:
                return is_stored
        return self._store.find(numbers)

    def decompress(self) -> None:
        if not self.is_complete:
            self._inner.decompress()

    @property
    def held_nbytes(self) -> int:
        return self._inner.held_nbytes

    def memory(self) -> Sequence[MemoryRegion]:
        return self._store.memory()

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        return self._store.memory_extents()

    def counters(self) -> dict[str, int]:
        return {**self._inner.counters(), "cached_rows": self._store.count, "cache_hits": self._hits.value}

    def decisions(self) -> list[Decision]:
        return [*self._inner.decisions(), Decision("cache", self._describe_rows(), self._describe_store())]

    def _describe_rows(self) -> str:
        return f"{self._store.count} of {self._used_rows} rows"

    def _describe_store(self) -> str:
        store, row_nbytes = self._store, sum(spec.nbytes for spec in self.specs)
        size = f"{format_nbytes(store.capacity * row_nbytes)} {store.place}"
        if store.problem:
            return f"{size}; no more rows are stored: {store.problem}"
        if store.capacity < self._used_rows:
            rest = self._used_rows - store.capacity
            return f"{size}; the budget holds {store.capacity} rows, and {rest} rows are computed in every epoch"
        if not self.is_complete and self._unreadable:
            return f"{size}; {len(self._unreadable)} rows could not be read, and are tried again in every epoch"
        if not self.is_complete:
            return f"{size}; each row is computed once"
        if not store.memory():
            return f"{size}; complete. Call cache() before select(), skip() or split() to let a device pull the rows"
        return f"{size}; complete: new epochs and feeds read the rows like arrays"

    def close(self) -> None:
        self._inner.close()
        self._store.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the cache without rows. The copy computes them, or reads them from disk."""
        make = partial(CachedSource, used_rows=self._used_rows, key=None if self._checks is None else self._checks.key)
        transform = RowTransform(tuple(self.specs), self.structure, self._transform, self._calls_user_code)
        state = {"identify": self.identify, "cached_transforms": self.cached_transforms}
        return make, (self._inner, self._store, transform), state


@contextmanager
def _explain_unequal_rows() -> Iterator[None]:
    """Replace the advice in a SpecError about unequal rows by advice for `cache()`."""
    try:
        yield
    except SpecError as error:
        found = str(error).partition(". ")[0]
        raise SpecError(
            f"{found}, but cache() keeps rows of one shape and dtype. Make them equal in the source, or in the map "
            "before cache()."
        ) from error


class _Count:
    """A counter that several threads increase. A pickled copy starts at 0."""

    def __init__(self) -> None:
        self.value, self._lock = 0, threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.value += number

    def __reduce__(self) -> tuple[type["_Count"], tuple[()]]:
        return _Count, ()
