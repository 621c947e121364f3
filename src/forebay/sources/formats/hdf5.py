"""HDF5 files as a source.

Forebay gathers the rows of most uncompressed datasets from the mapped file, and reads other datasets chunk by chunk.

The HDF5 library runs one thread at a time. Forebay therefore asks the library only where chunks are stored, and threads
of Forebay read and inflate the chunks in parallel. This works for chunks without a filter, and for chunks with the
deflate filter, the byte shuffle filter or both. The library itself reads all other datasets, such as those with other
filters.

The file may come from an untrusted source. It could name any other file of this machine, so Forebay reads other files
only if the user asks for it. Forebay checks the sizes that the file claims before it allocates memory.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from forebay.core.spec import Array, ArraySpec, Tree
from forebay.errors import ForebayError, SourceError
from forebay.sources.files.chunk_budget import ChunkBudget, ChunkClaim
from forebay.sources.files.chunked import ChunkBoundaries, ChunkedColumn
from forebay.sources.files.columns import (
    ColumnProtocol,
    ColumnsSource,
    FileHandle,
    MappedColumn,
    dict_structure,
    select_members,
)
from forebay.sources.files.external_files import ExternalFiles, external_file_error, reads_external_files
from forebay.sources.files.held_budget import HeldBudget, validate_claim
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import SegmentedColumn
from forebay.sources.formats.hdf5_chunks import Hdf5Chunks, can_decompress, stores_numpy_values
from forebay.sources.formats.hdf5_external import find_external_storage, is_in_file, open_group
from forebay.sources.formats.hdf5_filters import FilterLimits

__all__ = ["find_datasets", "open_h5_file", "open_hdf5"]

_MAX_DEPTH = 100  # levels of nested groups; the HDF5 library needs minutes to visit a thousand levels
_H5PY_READ_NBYTES = 1 << 20  # bytes per read of the HDF5 library, for a dataset without chunks


def open_hdf5(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "/",
    external_files: ExternalFiles = "refuse",
    filters: Sequence[int] = (),
    max_held_nbytes: int | None = None,
) -> ColumnsSource:
    """Open one HDF5 file as a source, without reading its data.

    A row is a dict with one array per dataset. The keys are names such as `x` or `train/x`.

    `members=["x", "y"]` selects datasets. `group="train"` opens only that group. With `spec=`, the names of its leaves
    select datasets, which must match the spec.

    A dataset may be stored in other files: as external raw data, as a virtual dataset, or behind an external link. Such
    a dataset is refused, because a file from an untrusted source could name any file of this machine. Pass
    `external_files="read"` if you trust the file.

    The file names the filters that decompress its chunks. Forebay limits the memory of the filters that HDF5 itself
    defines, such as gzip and SZIP, and of LZF, bzip2, Blosc, LZ4, Bitshuffle and Zstandard. A dataset with another
    filter is refused. Pass `filters=[number]` with the number of the filter if you trust the file.

    A chunk is decompressed when its rows are first needed. Up to `max_held_nbytes` of decompressed chunks stay in
    memory (1 GiB for None). The cache always has room for 4 chunks of each dataset. A file is refused if these chunks
    need more memory than the limit, which `HeldBudget.of` computes. For None, the limit is half of the memory of this
    machine, but at least 1 GiB.
    """
    reads_other_files = reads_external_files(external_files)
    trusted = _Trusted(reads_other_files, _filter_numbers(filters))
    mapped_file, budget = MappedFile(path), HeldBudget.of(max_held_nbytes)
    with open_h5_file(mapped_file.path) as h5_file:
        opener = _ColumnOpener(mapped_file, h5_file, ChunkBudget(budget), trusted)
        datasets = find_datasets(mapped_file.path, h5_file, group, follow_external_links=reads_other_files)
        names = select_members(mapped_file.path, "dataset", list(datasets), members=members, spec=spec)
        columns = [opener.open_column(name, datasets[name]) for name in names]
        file = FileHandle(mapped_file.path, mapped_file.check_unchanged, h5_file.close)
        return ColumnsSource(file, columns, dict_structure(names), spec=spec, max_held_nbytes=budget.cached_nbytes)


def _filter_numbers(filters: Any) -> frozenset[int]:
    if not isinstance(filters, Collection) or not all(isinstance(number, int | np.integer) for number in filters):
        raise SourceError(f"filters={filters!r} is not a list of numbers. Pass a list, such as filters=[32026].")
    return frozenset(map(int, filters))


@contextmanager
def open_h5_file(path: Path) -> Iterator[Any]:
    """Open a file with h5py.

    The file stays open unless the `with` block raises an error.
    """
    h5_file = None
    try:
        h5_file = h5py.File(path, "r")
        yield h5_file
    except BaseException as error:
        if h5_file is not None:
            h5_file.close()
        if isinstance(error, ForebayError) or not isinstance(error, Exception):
            raise
        # For a damaged file, the library raises anything from OSError to RuntimeError.
        raise SourceError(f"{path} cannot be read as HDF5: {error}. Write or download it again.") from error


def find_datasets(path: Path, h5_file: Any, group: str, *, follow_external_links: bool) -> dict[str, Any]:
    """Return all datasets in a group by name, in the order of h5py."""
    group_node = open_group(path, h5_file, group, follow_external_links=follow_external_links)
    datasets: dict[str, Any] = {}

    def add(name: str, node: Any) -> None:
        if name.count("/") > _MAX_DEPTH:
            raise SourceError(
                f"{path} has groups that are nested more than {_MAX_DEPTH} levels deep, beginning with {name[:20]!r}. "
                "Choose an inner group with group=, or write the file with fewer levels."
            )
        if isinstance(node, h5py.Dataset):
            datasets[name] = node

    group_node.visititems(add)
    return datasets


@dataclass(frozen=True, slots=True)
class _Trusted:
    """What the user allows a file to use."""

    other_files: bool
    filters: frozenset[int]  # numbers of filters whose memory Forebay does not limit


class _ColumnOpener:
    """Opens the datasets of one file as columns."""

    def __init__(self, mapped_file: MappedFile, h5_file: Any, budget: ChunkBudget, trusted: _Trusted) -> None:
        self._mapped_file, self._h5_file, self._budget = mapped_file, h5_file, budget
        self._path, self._trusted = mapped_file.path, trusted

    def open_column(self, name: str, dataset: Any) -> ColumnProtocol:
        self._validate_dataset(name, dataset)
        spec = ArraySpec(dataset.shape[1:], dataset.dtype)
        is_plain = stores_numpy_values(dataset) and is_in_file(dataset, self._h5_file)
        if not (is_plain and self._h5_file.userblock_size == 0):
            return self._open_with_h5py(spec, name, dataset)
        if dataset.chunks is not None:
            return self._open_chunks(spec, name, dataset)
        offset = dataset.id.get_offset()
        if offset is None:  # no data was written, or it is inside the header of the dataset
            return self._open_with_h5py(spec, name, dataset)
        return MappedColumn(self._mapped_file.array(dataset.shape, dataset.dtype, offset=offset))

    def _validate_dataset(self, name: str, dataset: Any) -> None:
        storage = find_external_storage(dataset)  # first, because `shape` opens the files of a virtual dataset
        if storage and not self._trusted.other_files:
            raise external_file_error(f"{name!r} in {self._path} is {storage}")
        if not dataset.shape:
            raise SourceError(
                f"{name!r} in {self._path} is a single value, not rows. Choose other datasets with members=[...]."
            )
        if dataset.dtype.hasobject:
            raise SourceError(
                f"{name!r} in {self._path} holds strings or lists of any length ({dataset.dtype}), which have no "
                "fixed shape. Choose other datasets with members=[...], store it as numbers, or pass an h5py dataset "
                "of lists to from_source()."
            )
        validate_claim(f"{name!r} in {self._path}", dataset.shape, dataset.dtype)

    def _open_chunks(self, spec: ArraySpec, name: str, dataset: Any) -> ColumnProtocol:
        if not can_decompress(dataset):
            return self._open_with_h5py(spec, name, dataset)
        boundaries = self._boundaries(name, dataset, dataset.chunks[0])
        chunks = Hdf5Chunks(self._mapped_file, name, dataset)
        offsets = chunks.find_row_offsets()
        if offsets is None:
            return ChunkedColumn(spec, boundaries, chunks.decompress)
        memory = self._mapped_file.array((self._mapped_file.nbytes,), np.dtype(np.uint8), offset=0)
        return SegmentedColumn(spec, boundaries, memory, offsets, is_swapped=not dataset.dtype.isnative)

    def _open_with_h5py(self, spec: ArraySpec, name: str, dataset: Any) -> ChunkedColumn:
        """Return a column that h5py reads, one thread at a time.

        h5py supports all filters, including plug-ins.
        """
        limits = FilterLimits(dataset, self._budget.max_nbytes, self._trusted.filters)
        if limits.unlimited:
            raise SourceError(
                f"{name!r} in {self._path} uses the HDF5 filter {limits.unlimited[0]}, which could need any amount of "
                f"memory. If you trust the file, pass filters={limits.unlimited}. Otherwise write it with another "
                "filter, such as Zstandard."
            )
        chunk_rows = dataset.chunks[0] if dataset.chunks else max(1, _H5PY_READ_NBYTES // max(1, spec.nbytes))
        boundaries, path = self._boundaries(name, dataset, chunk_rows), self._path

        def decompress(chunk: int, target: Array) -> None:
            first = int(boundaries[chunk])
            try:
                limits.validate(first)
                dataset.read_direct(target, np.s_[first : first + len(target)])
            except Exception as error:
                raise SourceError(
                    f"{dataset.name!r} in {path}, rows {first} to {first + len(target) - 1}, cannot be decompressed: "
                    f"{error}. If a filter is missing, import hdf5plugin first."
                ) from error

        return ChunkedColumn(spec, boundaries, decompress, f"h5py itself reads {dataset.name!r}, one thread at a time")

    def _boundaries(self, name: str, dataset: Any, chunk_rows: int) -> ChunkBoundaries:
        """Return the first row of each chunk, then the number of rows.

        Raise an error if the claimed sizes exceed the budget.
        """
        chunk_shape = dataset.chunks or (chunk_rows, *(max(1, length) for length in dataset.shape[1:]))
        claim = ChunkClaim(f"{name!r} in {self._path}", dataset.shape, dataset.dtype, chunk_shape, chunk_rows)
        return self._budget.boundaries(claim)
