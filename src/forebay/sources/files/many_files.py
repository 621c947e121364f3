"""Many files as one source. A file is opened when a thread needs its rows.

The suffix of a file selects its opener. Most openers read only the header of a file, to learn the number of rows and
their specs. For formats with one row per file, such as images, the opener makes one source of all files instead
(`MultiFileOpener`).
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core import registry
from forebay.core.chunk_policy import ChunkPolicy
from forebay.core.decision import Decision
from forebay.core.rows import Rows, find_parts, row_count, split_runs, split_slice
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.arrays import make_gather
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.held_budget import DEFAULT_HELD_NBYTES
from forebay.sources.files.match_spec import describe_leaves
from forebay.sources.files.open_pool import SourcePool
from forebay.sources.files.paths import Paths, are_read_as_objects, expand_paths, format_suffix
from forebay.sources.foreign import adapt_source, find_multi_file_opener

__all__ = ["FilesSource", "open_files"]

_SCRATCH_NBYTES = 4 * 2**20  # bytes per thread of a temporary buffer, which receives shuffled rows file by file
_LARGE_ROW_NBYTES = 32 * 1024  # bytes; rows of this size or more are gathered one by one, without the scratch buffer


def open_files(
    paths: Paths,
    *,
    spec: Tree | None = None,
    max_open_files: int = 256,
    max_held_bytes: int | str | None = None,
    **options: Any,
) -> AbstractSource:
    """Open one path, a glob, or a list of both as one source.

    All files must have the same specs. Row numbers continue from file to file. Files keep the order of a list; files
    of a glob are sorted naturally (2 before 10). `options` go to the opener of the format, such as `delimiter=` for
    `.csv` or `size=` for images. At most `max_open_files` files stay open, and their decompressed or parsed data takes
    at most `max_held_bytes` (1 GiB for None). Files that threads use at the same time may exceed both limits.

    A `.npz`, HDF5 or Zarr file that needs more than `max_held_bytes` is refused. Without `max_held_bytes`, one file may
    need up to half of the memory of this machine.
    """
    paths = paths if isinstance(paths, str | os.PathLike) else list(paths)
    if are_read_as_objects(paths, options):
        open_local = partial(open_files, max_open_files=max_open_files, max_held_bytes=max_held_bytes)
        remote: AbstractSource = registry.load_object_opener()(paths, open_local=open_local, spec=spec, **options)
        return remote
    files = expand_paths(paths)
    openers = [registry.load_source_opener(format_suffix(file)) for file in files]
    for file, opener in zip(files, openers, strict=True):
        _validate_options(file, opener, options)
    max_held_nbytes = None if max_held_bytes is None else parse_nbytes(max_held_bytes, "max_held_bytes")
    open_many = find_multi_file_opener(openers[0])
    if open_many is not None and all(opener is openers[0] for opener in openers):
        return adapt_source(open_many(files, spec=spec, **options))
    file_openers = [
        _FileOpener(file, partial(_open_file, _bind_budget(opener, max_held_nbytes), file, spec=spec, **options))
        for file, opener in zip(files, openers, strict=True)
    ]
    if len(files) == 1:
        return file_openers[0]()
    if max_open_files < 1:
        raise SourceError(f"max_open_files={max_open_files} allows no open file. Pass 1 or more.")
    held_nbytes = DEFAULT_HELD_NBYTES if max_held_nbytes is None else max_held_nbytes
    return FilesSource(file_openers, max_open=max_open_files, max_held_nbytes=held_nbytes)


class FilesSource(AbstractSource):
    """The rows of many files, one file after the other."""

    immutable = True

    def __init__(self, openers: Sequence["_FileOpener"], *, max_open: int, max_held_nbytes: int) -> None:
        self._pool = SourcePool(openers, max_open=max_open, max_held_nbytes=max_held_nbytes)
        self._keeps_files_open = len(openers) <= max_open
        self._max_held_nbytes = max_held_nbytes
        self._prefetchers: list[DecompressAhead] = []  # one for each pass that is not closed
        files: list[_FileInfo] = []
        for number, opener in enumerate(openers):
            files.append(self._read_info(number, opener))
            _validate_same_specs(files[0], files[-1])
        self.specs, self.structure = files[0].specs, files[0].structure
        self._boundaries = [0, *accumulate(file.length for file in files)]
        self._first_rows = np.asarray(self._boundaries[:-1])
        self._row_nbytes = sum(spec.nbytes for spec in self.specs)
        self._decompressed_nbytes = [file.decompressed_nbytes for file in files]
        longest = max(files, key=lambda file: file.chunk_policy.rows)
        self.shuffle_blocks = longest.chunk_policy.shuffle_blocks(len(self), max_held_nbytes)
        self.read_decision = longest.read_decision
        if longest.chunk_policy.rows > 1:
            self.read_decision = longest.chunk_policy.explain(len(self), self.shuffle_blocks)

    def __len__(self) -> int:
        return self._boundaries[-1]

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if isinstance(rows, slice):
            self._gather_slice(rows, out)
        elif len(rows):
            self._gather_scattered(rows, out)
        if self._prefetchers and row_count(rows):
            self._release_group(rows)

    def gather_leaves(self, leaves: Sequence[int], rows: Rows) -> list[Array]:
        if not isinstance(rows, slice):
            return super().gather_leaves(leaves, rows)
        out = [self.specs[leaf].empty(row_count(rows)) for leaf in leaves]
        for file, part in split_slice(rows, self._boundaries):
            first = self._boundaries[file]
            with self._pool.use(file) as source:
                columns = source.gather_leaves(leaves, slice(part.start - first, part.stop - first))
            for array, column in zip(out, columns, strict=True):
                array[part.start - rows.start : part.stop - rows.start] = column
        return out

    def prefetch(self, upcoming: Iterator[Rows]) -> DecompressAhead | None:
        """Start to decompress the files of upcoming groups; return None unless all are compressed."""
        if not all(self._decompressed_nbytes):
            return None
        sizes, budget = self._decompressed_nbytes, self._max_held_nbytes
        prefetcher = DecompressAhead(upcoming, self._count_rows, self._pool.use, nbytes=sizes, budget_nbytes=budget)
        self._prefetchers = [*(other for other in self._prefetchers if not other.is_closed), prefetcher]
        return prefetcher

    def _release_group(self, rows: Rows) -> None:
        """Tell the prefetcher of a group that its rows were gathered.

        If no prefetcher has admitted the group yet, tell all, because the group may belong to any of them.
        """
        prefetchers = self._prefetchers
        if not any(prefetcher.release_group(rows) for prefetcher in prefetchers):
            for prefetcher in prefetchers:
                prefetcher.skip_group(rows)

    def memory(self) -> list[MemoryRegion]:
        """Return the regions of all files; empty if the pool may close files."""
        if not self._keeps_files_open:
            return []
        regions: list[MemoryRegion] = []
        for number in range(len(self._first_rows)):
            with self._pool.use(number) as source:
                file_regions = source.memory()
            if not file_regions:  # one file without regions makes page-locking of the whole source impossible
                return []
            regions += file_regions
        return regions

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return self._join_extents(lambda source: source.memory_extents())

    def file_extents(self) -> list[list[FileExtent]]:
        return self._join_extents(lambda source: source.file_extents())

    def close(self) -> None:
        self._pool.close()

    def _read_info(self, number: int, opener: "_FileOpener") -> "_FileInfo":
        with self._pool.use(number):
            assert opener.info is not None
            return opener.info

    def _join_extents(self, extents_of: Callable[[AbstractSource], Sequence[Sequence[Any]]]) -> list[list[Any]]:
        """Return the extents of all files; empty if the pool may close files."""
        if not self._keeps_files_open:
            return []
        leaves: list[list[Any]] = [[] for _ in self.specs]
        for number, first in enumerate(self._boundaries[:-1]):
            with self._pool.use(number) as source:
                file_extents = extents_of(source)
            if len(file_extents) != len(leaves):
                return []
            for leaf, extents in zip(leaves, file_extents, strict=True):
                leaf += [replace(extent, first=extent.first + first) for extent in extents]
        return leaves

    def _count_rows(self, rows: Rows) -> dict[int, int]:
        """Return how many of these rows each file holds: file number -> row count."""
        if isinstance(rows, slice):
            return {file: part.stop - part.start for file, part in split_slice(rows, self._boundaries)}
        files, counts = np.unique(find_parts(rows, self._first_rows), return_counts=True)
        return dict(zip(files.tolist(), counts.tolist(), strict=True))

    def _gather_slice(self, rows: slice, out: Sequence[Array]) -> None:
        for file, part in split_slice(rows, self._boundaries):
            first, target = self._boundaries[file], slice(part.start - rows.start, part.stop - rows.start)
            self._gather_from(file, slice(part.start - first, part.stop - first), [leaf[target] for leaf in out])

    def _gather_from(self, file: int, rows: Rows, out: Sequence[Array]) -> None:
        with self._pool.use(file) as source:
            source.gather(rows, out)

    def _gather_scattered(self, rows: Array, out: Sequence[Array]) -> None:
        files = find_parts(rows, self._first_rows)
        if (files[1:] >= files[:-1]).all():
            self._gather_sorted(rows, files, out)
        elif self._row_nbytes >= _LARGE_ROW_NBYTES:
            self._gather_one_by_one(rows, files, out)
        else:
            step = max(1, _SCRATCH_NBYTES // max(1, self._row_nbytes))
            for start in range(0, len(rows), step):
                part = slice(start, start + step)
                self._gather_through_scratch(rows[part], files[part], [leaf[part] for leaf in out])

    def _gather_sorted(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        """Gather rows whose file numbers never decrease."""
        for file, part in split_runs(files):
            self._gather_from(file, rows[part] - self._boundaries[file], [leaf[part] for leaf in out])

    def _gather_one_by_one(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        for position in np.argsort(files, kind="stable").tolist():
            part = slice(position, position + 1)
            self._gather_sorted(rows[part], files[part], [leaf[part] for leaf in out])

    def _gather_through_scratch(self, rows: Array, files: Array, out: Sequence[Array]) -> None:
        """Gather rows file by file into a scratch buffer, then reorder them."""
        order = np.argsort(files, kind="stable")
        scratch = [np.empty_like(leaf) for leaf in out]
        self._gather_sorted(rows[order], files[order], scratch)
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        for leaf, gathered in zip(out, scratch, strict=True):
            make_gather(gathered)(positions, leaf)


@dataclass(frozen=True, slots=True)
class _FileInfo:
    """Facts about a file, from the first time that it was opened."""

    path: Path
    length: int
    specs: tuple[ArraySpec, ...]
    structure: Structure
    chunk_policy: ChunkPolicy
    read_decision: Decision | None
    decompressed_nbytes: int

    @classmethod
    def of(cls, path: Path, source: AbstractSource) -> "_FileInfo":
        return cls(
            path,
            len(source),
            tuple(source.specs),
            source.structure,
            source.chunk_policy,
            source.read_decision,
            source.decompressed_nbytes,
        )


class _FileOpener:
    """Opens one file, and opens it again after the pool has closed it.

    It raises an error if the length or the specs differ from those of the first opening.
    """

    def __init__(self, path: Path, open_file: Callable[[], AbstractSource]) -> None:
        self.path, self._open = path, open_file
        self.info: _FileInfo | None = None  # of the first opening

    def __call__(self) -> AbstractSource:
        return self._open_first() if self.info is None else self._open_again(self.info)

    def _open_first(self) -> AbstractSource:
        source = self._open()
        self.info = _FileInfo.of(self.path, source)
        self._open = source.reopener() or self._open
        return source

    def _open_again(self, info: _FileInfo) -> AbstractSource:
        try:
            source = self._open()
        except SourceError as error:
            raise SourceChangedError(
                f"{self.path} was readable when it was opened, but not now: {error} Create the pipeline again."
            ) from error
        if len(source) != info.length or tuple(source.specs) != info.specs:
            raise SourceChangedError(
                f"{self.path} was replaced while a feed read it: it had {info.length} rows of "
                f"{describe_leaves(info.structure.paths, info.specs)} and has {len(source)} of "
                f"{describe_leaves(source.structure.paths, source.specs)} now. Create the pipeline again."
            )
        return source


def _validate_same_specs(first: _FileInfo, other: _FileInfo) -> None:
    if first.structure.paths == other.structure.paths and first.specs == other.specs:
        return
    raise SpecError(
        "the files of one pipeline must have the same specs, but "
        f"{first.path} has {describe_leaves(first.structure.paths, first.specs)} and "
        f"{other.path} has {describe_leaves(other.structure.paths, other.specs)}. "
        "Feed them in two pipelines, or convert one of them."
    )


def _open_file(opener: Callable[..., Any], file: Path, **options: Any) -> AbstractSource:
    return adapt_source(opener(file, **options))


def _bind_budget(opener: Callable[..., Any], max_held_nbytes: int | None) -> Callable[..., Any]:
    """Bind the memory budget if the opener has the parameter `max_held_nbytes`.

    Without a budget of the user, an opener whose default is None chooses the budget itself.
    """
    parameter = inspect.signature(opener).parameters.get("max_held_nbytes")
    if parameter is None or (max_held_nbytes is None and parameter.default is None):
        return opener
    return partial(opener, max_held_nbytes=DEFAULT_HELD_NBYTES if max_held_nbytes is None else max_held_nbytes)


def _validate_options(file: Path, opener: Callable[..., Any], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(opener).parameters
    known = [name for name in parameters if name != "max_held_nbytes"]
    unknown = [name for name in options if name not in known]
    if unknown:
        valid = ", ".join(name for name in known if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY)
        raise SourceError(
            f"{format_suffix(file)} files have no option {unknown[0]!r}. Choose from these options: {valid}."
        )
