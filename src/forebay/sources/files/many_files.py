"""Many files as one row space, opened when their rows are asked for.

Each file is opened by what its suffix names. Opening reads headers only: how many rows there are and what they look
like. A format of one row a file, such as images, opens all its files together instead (`MultiFileOpener`).
"""

import inspect
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core import registry
from forebay.core.chunk_policy import ChunkPolicy
from forebay.core.decision import Decision
from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.arrays import gather_leaf
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.match_spec import describe
from forebay.sources.files.open_pool import SourcePool
from forebay.sources.files.paths import Paths, expand_paths, is_address, suffix_of
from forebay.sources.foreign import adapt_source, find_multi_file_opener

__all__ = ["FilesSource", "open_files"]

_SCRATCH_NBYTES = 4 * 2**20  # rows scattered over files pass through a piece of this size, a thread
_DIRECT_NBYTES = 32 * 1024  # rows from this size on are worth a call each, to save that second copy


def open_files(
    paths: Paths,
    *,
    spec: Tree | None = None,
    max_open_files: int = 256,
    max_held_bytes: int | str = "1GiB",
    **options: Any,
) -> AbstractSource:
    """Open one path, a glob, or a list of either as one source; files may differ in length, not in what a row is.

    Rows are numbered through the files in order: a list's own, or for a glob the natural one (2 before 10).
    `options` go to the opener of the format, such as `delimiter=` for `.csv` or `size=` for images. At most
    `max_open_files` are open at once, and what they hold inflated or parsed in memory is at most `max_held_bytes`
    (a single file, and files being read at that moment, may hold more).
    """
    paths = paths if isinstance(paths, str | os.PathLike) else list(paths)
    if is_address(paths, options):
        open_local = partial(open_files, max_open_files=max_open_files, max_held_bytes=max_held_bytes)
        remote: AbstractSource = registry.address_opener()(paths, open_local=open_local, spec=spec, **options)
        return remote
    files = expand_paths(paths)
    openers = [registry.source_opener(suffix_of(file)) for file in files]
    for file, opener in zip(files, openers, strict=True):
        _check_options(file, opener, options)
    held_nbytes = parse_nbytes(max_held_bytes, "max_held_bytes")
    open_many = find_multi_file_opener(openers[0])
    if open_many is not None and all(opener is openers[0] for opener in openers):
        return adapt_source(open_many(files, spec=spec, **options))
    opening: list[Callable[[], AbstractSource]] = [
        partial(_open_adapted, _bounded(opener, held_nbytes), file, spec=spec, **options)
        for file, opener in zip(files, openers, strict=True)
    ]
    if len(files) == 1:
        return opening[0]()
    if max_open_files < 1:
        raise SourceError(f"max_open_files={max_open_files} leaves no file to read from: pass 1 or more.")
    return FilesSource(
        [_File(file, opener) for file, opener in zip(files, opening, strict=True)],
        max_open=max_open_files,
        max_held_nbytes=held_nbytes,
    )


class FilesSource(AbstractSource):
    """The rows of many files, one file after the other."""

    immutable = True  # what lies in a file stays as it is

    def __init__(self, files: Sequence["_File"], *, max_open: int, max_held_nbytes: int) -> None:
        self._pool = SourcePool(files, max_open=max_open, max_held_nbytes=max_held_nbytes)
        self._may_lock = len(files) <= max_open  # only then is no file ever unmapped
        self._max_held_nbytes, self._unpacking = max_held_nbytes, list[DecompressAhead]()
        for number in range(len(files)):
            with self._pool.use(number):
                _check_same(files[0], files[number])
        self.specs, self.structure = files[0].specs, files[0].structure
        self._starts = [0, *accumulate(file.length for file in files)]
        self._start_array = np.asarray(self._starts[:-1])
        self._row_nbytes = sum(spec.nbytes for spec in self.specs)
        self._decompressed_nbytes = [file.decompressed_nbytes for file in files]
        longest = max(files, key=lambda file: file.chunk_policy.rows)
        self.shuffle_blocks = longest.chunk_policy.shuffle_blocks(len(self), max_held_nbytes)
        self.read_decision = longest.read_decision
        if longest.chunk_policy.rows > 1:
            self.read_decision = longest.chunk_policy.explain(len(self), self.shuffle_blocks)

    def __len__(self) -> int:
        return self._starts[-1]

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if isinstance(rows, slice):
            self._gather_run(rows, out)
        elif len(rows):
            self._gather_scattered(rows, out)

    def memory(self) -> list[MemoryRegion]:
        """The regions of all files, where all of them may stay open at once."""
        if not self._may_lock:
            return []
        regions: list[MemoryRegion] = []
        for number in range(len(self._starts) - 1):
            with self._pool.use(number) as source:
                found = source.memory()
            if not found:  # some rows lie where they cannot be locked, so the source as a whole does
                return []
            regions += found
        return regions

    def prefetch(self, upcoming: Iterator[Rows]) -> DecompressAhead | None:
        """Unpack the files of coming groups ahead, until what is returned is closed; nothing where none is packed."""
        if not all(self._decompressed_nbytes):
            return None
        sizes, budget = self._decompressed_nbytes, self._max_held_nbytes
        unpacking = DecompressAhead(upcoming, self._count_rows, self._pool.use, nbytes=sizes, budget_nbytes=budget)
        self._unpacking = [*(other for other in self._unpacking if not other.is_closed), unpacking]
        return unpacking

    def memory_extents(self) -> list[list[MemoryExtent]]:
        """Of all files, one after the other, where all of them may stay open at once."""
        return self._all_extents(AbstractSource.memory_extents)

    def file_extents(self) -> list[list[FileExtent]]:
        """Of all files, one after the other, where all of them may stay open at once."""
        return self._all_extents(AbstractSource.file_extents)

    def _all_extents(self, extents_of: Callable[[AbstractSource], Sequence[Sequence[Any]]]) -> list[list[Any]]:
        if not self._may_lock:
            return []
        leaves: list[list[Any]] = [[] for _ in self.specs]
        for number, first in enumerate(self._starts[:-1]):
            with self._pool.use(number) as source:
                found = extents_of(source)
            if len(found) != len(leaves):
                return []
            for leaf, pieces in zip(leaves, found, strict=True):
                leaf += [replace(piece, first=piece.first + first) for piece in pieces]
        return leaves

    def close(self) -> None:
        self._pool.close()

    def _count_rows(self, rows: Rows) -> dict[int, int]:
        """How many of some rows each file has, in the order of the files."""
        if not isinstance(rows, slice):
            files, counts = np.unique(np.searchsorted(self._start_array, rows, side="right") - 1, return_counts=True)
            return dict(zip(files.tolist(), counts.tolist(), strict=True))
        first, last = (bisect_right(self._starts, row) - 1 for row in (rows.start, rows.stop - 1))
        seams = [rows.start, *self._starts[first + 1 : last + 1], rows.stop]
        return {first + number: stop - start for number, (start, stop) in enumerate(pairwise(seams))}

    def _tell_gathered(self, file: int, rows: int) -> None:
        for unpacking in self._unpacking:
            unpacking.on_gathered(file, rows)

    def _gather_run(self, rows: slice, out: Sequence[Array]) -> None:
        start = rows.start
        while start < rows.stop:
            file = bisect_right(self._starts, start) - 1
            first, stop = self._starts[file], min(rows.stop, self._starts[file + 1])
            target = slice(start - rows.start, stop - rows.start)
            with self._pool.use(file) as source:
                source.gather(slice(start - first, stop - first), [leaf[target] for leaf in out])
            self._tell_gathered(file, stop - start)
            start = stop

    def _gather_scattered(self, rows: Array, out: Sequence[Array]) -> None:
        """Each file is visited once; its rows land side by side, and then all go to their places at once."""
        files = np.searchsorted(self._start_array, rows, side="right") - 1
        if (files[1:] >= files[:-1]).all():
            self._gather_sorted(rows, files, out)
        elif self._row_nbytes >= _DIRECT_NBYTES:
            self._gather_each(rows, files, out)
        else:
            step = max(1, _SCRATCH_NBYTES // max(1, self._row_nbytes))
            for start in range(0, len(rows), step):
                piece = slice(start, start + step)
                self._gather_through_scratch(rows[piece], files[piece], [leaf[piece] for leaf in out])

    def _gather_sorted(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        seams = np.flatnonzero(files[1:] != files[:-1]) + 1
        for start, stop in pairwise([0, *seams.tolist(), len(rows)]):
            file = int(files[start])
            with self._pool.use(file) as source:
                source.gather(rows[start:stop] - self._starts[file], [leaf[start:stop] for leaf in out])
            self._tell_gathered(file, stop - start)

    def _gather_each(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        for place in np.argsort(files, kind="stable").tolist():
            here = slice(place, place + 1)
            self._gather_sorted(rows[here], files[here], [leaf[here] for leaf in out])

    def _gather_through_scratch(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        order = np.argsort(files, kind="stable")
        scratch = [np.empty_like(leaf) for leaf in out]
        self._gather_sorted(rows[order], files[order], scratch)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        for leaf, piece in zip(out, scratch, strict=True):
            gather_leaf(piece)(back, leaf)


class _File:
    """One file that can be opened again; calling it does that."""

    def __init__(self, path: Path, opener: Callable[[], AbstractSource]) -> None:
        self.path = path
        self.length = -1  # not opened yet
        self.specs: tuple[ArraySpec, ...] = ()
        self.structure = Structure(None)
        self.chunk_policy = ChunkPolicy()
        self.read_decision: Decision | None = None
        self.decompressed_nbytes = 0  # what it holds once it has unpacked itself
        self._open = opener

    def __call__(self) -> AbstractSource:
        return self._open_first() if self.length < 0 else self._open_again()

    def _open_first(self) -> AbstractSource:
        source = self._open()
        self.length, self.specs, self.structure = len(source), tuple(source.specs), source.structure
        self.chunk_policy, self.read_decision = source.chunk_policy, source.read_decision
        self.decompressed_nbytes = source.decompressed_nbytes
        # A source that was costly to open may know how to do it cheaply the next time.
        self._open = source.reopener() or self._open
        return source

    def _open_again(self) -> AbstractSource:
        try:
            source = self._open()
        except SourceError as error:
            raise SourceChangedError(f"{self.path} could be read when it was opened, but not now: {error}") from error
        if len(source) != self.length or tuple(source.specs) != self.specs:
            raise SourceChangedError(
                f"{self.path} was replaced while it was being fed: it had {self.length} rows of "
                f"{describe(self.structure.paths, self.specs)} and has {len(source)} of "
                f"{describe(source.structure.paths, source.specs)} now. Make the feed again."
            )
        return source


def _check_same(first: _File, other: _File) -> None:
    one, two = first.structure.paths, other.structure.paths
    if one == two and first.specs == other.specs:
        return
    raise SpecError(
        f"files fed together must hold the same rows, but {first.path} has {describe(one, first.specs)} "
        f"and {other.path} has {describe(two, other.specs)}. Feed them apart, or convert one of them."
    )


def _open_adapted(opener: Callable[..., Any], file: Path, **options: Any) -> AbstractSource:
    return adapt_source(opener(file, **options))


def _bounded(opener: Callable[..., AbstractSource], held_nbytes: int) -> Callable[..., AbstractSource]:
    """The opener, told how much it may hold, if it asks."""
    asks = "max_held_nbytes" in inspect.signature(opener).parameters
    return partial(opener, max_held_nbytes=held_nbytes) if asks else opener


def _check_options(file: Path, opener: Callable[..., AbstractSource], options: Mapping[str, Any]) -> None:
    known = {name: taken for name, taken in inspect.signature(opener).parameters.items() if name != "max_held_nbytes"}
    unknown = [name for name in options if name not in known]
    if unknown:
        taken = ", ".join(name for name, parameter in known.items() if parameter.kind is parameter.KEYWORD_ONLY)
        raise SourceError(f"{suffix_of(file)} files take no option {unknown[0]!r}: their options are {taken}.")
