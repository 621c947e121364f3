"""Many files as one source, which keeps a limited number of files open.

A closed file is opened again when a thread needs its rows.

The suffix of a file selects its opener. Most openers read only the header of a file, to learn the number of rows and
their specs. For formats with one row per file, such as images, the opener makes one source of all files instead
(`MultiFileOpener`).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from forebay.core import registry
from forebay.core.chunk_policy import ChunkPolicy
from forebay.core.decision import Decision
from forebay.core.progress_line import ProgressLine
from forebay.core.rows import Rows, find_parts, row_count, split_slice
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion, sum_counters
from forebay.core.spec import Array, ArraySpec, Structure, Tree, parse_nbytes
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.decoder_threads import decode_rows
from forebay.sources.files.decompress_ahead import DecompressAhead
from forebay.sources.files.held_budget import DEFAULT_HELD_NBYTES
from forebay.sources.files.match_spec import describe_leaves
from forebay.sources.files.open_pool import SourcePool
from forebay.sources.files.paths import Paths, expand_paths, format_suffix
from forebay.sources.foreign import adapt_source, find_multi_file_opener
from forebay.sources.part_gather import PartGather, join_extents

__all__ = ["FilesSource", "open_files"]

Value = TypeVar("Value")


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

    A `.npz`, Parquet, Arrow, HDF5 or Zarr file that needs more than `max_held_bytes` and more than 64 MiB at once is
    refused. Without `max_held_bytes`, one such file may need up to half of the memory of this machine, or 1 GiB if that
    is more.
    """
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
    can_prefetch = True

    def __init__(self, openers: Sequence["_FileOpener"], *, max_open: int, max_held_nbytes: int) -> None:
        self._pool = SourcePool(openers, max_open=max_open, max_held_nbytes=max_held_nbytes)
        self._keeps_files_open = len(openers) <= max_open
        self._max_held_nbytes = max_held_nbytes
        self._prefetchers: list[DecompressAhead] = []  # one for each read session that is not closed
        files: list[_FileInfo] = []
        with ProgressLine(f"opening {len(openers)} files", len(openers)) as progress:
            for progress.done, opener in enumerate(openers):
                files.append(self._read_info(progress.done, opener))
                _validate_same_specs(files[0], files[-1])
        self.specs, self.structure = files[0].specs, files[0].structure
        self._boundaries = [0, *accumulate(file.length for file in files)]
        self._first_rows, self._files = np.asarray(self._boundaries[:-1]), files
        self.decodes_rows = any(file.count_decoded is not None for file in files)
        self._gather = PartGather(
            self._boundaries,
            sum(spec.nbytes for spec in self.specs),
            self._gather_from,
            # If the pool may close files, read each file once per group, because opening a file again may take long.
            gather_mixed=self._decode_rows if self.decodes_rows and self._keeps_files_open else None,
        )
        self._decompressed_nbytes = [file.decompressed_nbytes for file in files]
        longest = max(files, key=lambda file: file.chunk_policy.rows)
        self.shuffle_blocks = longest.chunk_policy.shuffle_blocks(len(self), max_held_nbytes)
        self.read_decision = longest.read_decision
        if longest.chunk_policy.rows > 1:
            self.read_decision = longest.chunk_policy.explain(len(self), self.shuffle_blocks)

    def __len__(self) -> int:
        return self._boundaries[-1]

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        self._gather.gather(rows, out)
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

    def counters(self) -> dict[str, int]:
        return sum_counters(file.count_decoded() for file in self._files if file.count_decoded is not None)

    def prefetch(self, upcoming: Iterator[Rows]) -> DecompressAhead | None:
        """Start to decompress the files of upcoming groups.

        Return None unless all files are compressed.
        """
        if not all(self._decompressed_nbytes):
            return None
        sizes, budget = self._decompressed_nbytes, self._max_held_nbytes
        prefetcher = DecompressAhead(
            upcoming, self._gather.count_rows, self._pool.use, nbytes=sizes, budget_nbytes=budget
        )
        self._prefetchers = [*(other for other in self._prefetchers if not other.is_closed), prefetcher]
        return prefetcher

    def _release_group(self, rows: Rows) -> None:
        """Tell the prefetcher of a group that its rows were gathered.

        If no prefetcher has admitted the group yet, tell all prefetchers, because any of them may admit it later.
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
        for file_regions in self._read_files(lambda source: source.memory()):
            if not file_regions:  # the regions must contain all rows, so one file without regions is enough
                return []
            regions += file_regions
        return regions

    def memory_extents(self) -> list[list[MemoryExtent]]:
        parts = self._read_files(lambda source: source.memory_extents())
        return join_extents(self._boundaries, parts, len(self.specs)) if self._keeps_files_open else []

    def file_extents(self) -> list[list[FileExtent]]:
        parts = self._read_files(lambda source: source.file_extents())
        return join_extents(self._boundaries, parts, len(self.specs)) if self._keeps_files_open else []

    def close(self) -> None:
        self._pool.close()

    def _read_info(self, number: int, opener: "_FileOpener") -> "_FileInfo":
        with self._pool.use(number):
            assert opener.info is not None
            return opener.info

    def _read_files(self, read: Callable[[AbstractSource], Value]) -> Iterator[Value]:
        """Yield `read(source)` for each file, which the pool opens if it is closed."""
        for number in range(len(self._boundaries) - 1):
            with self._pool.use(number) as source:
                yield read(source)

    def _gather_from(self, file: int, rows: Rows, out: Sequence[Array]) -> None:
        with self._pool.use(file) as source:
            source.gather(rows, out)

    def _decode_rows(self, rows: Rows, out: Sequence[Array]) -> None:
        """Decode rows of several files on all decoder threads."""
        assert not isinstance(rows, slice)
        files = find_parts(rows, self._first_rows).tolist()

        def decode_row(position: int, number: int) -> None:
            index = slice(position, position + 1)
            self._gather_from(
                files[position], rows[index] - self._boundaries[files[position]], [leaf[index] for leaf in out]
            )

        decode_rows(decode_row, rows.tolist())


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
    count_decoded: Callable[[], dict[str, int]] | None  # the counters of a source that decodes rows; else None

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
            source.counters if source.decodes_rows else None,
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
    """Return the opener with the memory budget, if it has the parameter `max_held_nbytes`.

    If the user gave no budget and the default of the parameter is None, the opener chooses the budget itself.
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
        hint = (
            " For numbers such as token IDs, write spec='uint16'." if unknown[0] == "dtype" and "spec" in known else ""
        )
        raise SourceError(
            f"{format_suffix(file)} files have no option {unknown[0]!r}. Choose from these options: {valid}.{hint}"
        )
