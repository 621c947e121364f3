"""HDF5 files as a source.

Rows of plain datasets are gathered from the mapped file. Compressed datasets are decompressed chunk by chunk.

The HDF5 library runs one thread at a time. So the library only reports where data is stored, and threads of Forebay
read and inflate it in parallel. This works for chunks that are plain, deflated or byte-shuffled. The library itself
reads chunks with any other filter, and datasets that are stored in other files.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from forebay.core.spec import Array, ArraySpec, Tree
from forebay.errors import ForebayError, SourceError
from forebay.sources.files.chunked import ChunkedColumn
from forebay.sources.files.columns import (
    ColumnProtocol,
    ColumnsSource,
    FileHandle,
    MappedColumn,
    dict_structure,
    select_members,
)
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import SegmentedColumn
from forebay.sources.formats.hdf5_chunks import Hdf5Chunks, can_decompress, is_plain

__all__ = ["open_hdf5"]

_LIBRARY_READ_NBYTES = 1 << 20  # bytes per read of the HDF5 library, for a dataset without chunks


def open_hdf5(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "/",
    max_held_nbytes: int = 2**30,
) -> ColumnsSource:
    """Open one HDF5 file as a dict of its datasets, without reading data.

    The keys are names such as `x` or `train/x`.

    `members=["x", "y"]` selects datasets, `group="train"` a group. With `spec=`, the names of its leaves select
    datasets, which must match it. A chunk is decompressed when its rows are first needed. At most `max_held_nbytes` of
    decompressed chunks stay in memory.
    """
    mapped = MappedFile(path)
    with _open_library_file(mapped.path) as library:
        datasets = _find_datasets(mapped.path, library, group)
        names = select_members(mapped.path, "dataset", list(datasets), members=members, spec=spec)
        columns = [_open_column(mapped, library, name, datasets[name]) for name in names]
        file = FileHandle(mapped.path, mapped.check_size, library.close)
        return ColumnsSource(file, columns, dict_structure(names), spec=spec, max_held_nbytes=max_held_nbytes)


@contextmanager
def _open_library_file(path: Path) -> Iterator[Any]:
    """Open a file with h5py. It stays open unless the block raises an error."""
    library = None
    try:
        library = h5py.File(path, "r")
        yield library
    except BaseException as error:
        if library is not None:
            library.close()
        if isinstance(error, ForebayError) or not isinstance(error, Exception):
            raise
        # For a damaged file, the library raises anything from OSError to RuntimeError.
        raise SourceError(f"{path} cannot be read as HDF5: {error}. Write or download it again.") from error


def _find_datasets(path: Path, library: Any, group: str) -> dict[str, Any]:
    """Return every dataset in the group, in the order of the file."""
    top = library.get(group)
    if not isinstance(top, h5py.Group):
        raise SourceError(f"{path} has no group {group!r}. It has {', '.join(map(repr, library)) or 'nothing'}.")
    found: dict[str, Any] = {}
    top.visititems(lambda name, node: found.update({name: node}) if isinstance(node, h5py.Dataset) else None)
    return found


def _open_column(mapped: MappedFile, library: Any, name: str, dataset: Any) -> ColumnProtocol:
    if not dataset.shape:
        raise SourceError(f"{name!r} in {mapped.path} is a single value, not rows. Choose others with members=[...].")
    if dataset.dtype.hasobject:
        raise SourceError(
            f"{name!r} in {mapped.path} holds strings or lists of any length ({dataset.dtype}), which have no fixed "
            "shape. Choose others with members=[...], or store it as numbers."
        )
    spec = ArraySpec(dataset.shape[1:], dataset.dtype)
    if not (is_plain(dataset) and library.userblock_size == 0):
        return _open_by_library(spec, dataset, mapped.path)
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        if offset is None:  # no data was written, or the header holds it
            return _open_by_library(spec, dataset, mapped.path)
        return MappedColumn(mapped.array(dataset.shape, dataset.dtype, offset=offset))
    return _open_chunks(mapped, spec, name, dataset)


def _open_chunks(mapped: MappedFile, spec: ArraySpec, name: str, dataset: Any) -> ColumnProtocol:
    if not can_decompress(dataset):
        return _open_by_library(spec, dataset, mapped.path)
    chunks = Hdf5Chunks(mapped, name, dataset)
    boundaries = _chunk_boundaries(len(dataset), dataset.chunks[0])
    offsets = chunks.plain_offsets()
    if offsets is None:
        return ChunkedColumn(spec, boundaries, chunks.decompress)
    memory = mapped.array((mapped.nbytes,), np.dtype(np.uint8), offset=0)
    return SegmentedColumn(spec, boundaries, memory, offsets, is_swapped=not dataset.dtype.isnative)


def _open_by_library(spec: ArraySpec, dataset: Any, path: Path) -> ChunkedColumn:
    """Return a column that h5py reads, one thread at a time.

    h5py also supports plug-in filters.
    """
    rows = dataset.chunks[0] if dataset.chunks else max(1, _LIBRARY_READ_NBYTES // max(1, spec.nbytes))
    boundaries = _chunk_boundaries(len(dataset), rows)

    def decompress(chunk: int, target: Array) -> None:
        first = int(boundaries[chunk])
        try:
            dataset.read_direct(target, np.s_[first : first + len(target)])
        except Exception as error:
            raise SourceError(
                f"{dataset.name!r} in {path}, rows {first} to {first + len(target) - 1}, cannot be decompressed: "
                f"{error}. If a filter is missing, import hdf5plugin first."
            ) from error

    return ChunkedColumn(spec, boundaries, decompress, f"h5py itself reads {dataset.name!r}, one thread at a time")


def _chunk_boundaries(length: int, rows: int) -> Any:
    return np.append(np.arange(0, length, rows, dtype=np.int64), length)
