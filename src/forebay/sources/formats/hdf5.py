"""HDF5 files as a source.

Rows of most uncompressed datasets are gathered from the mapped file. Other datasets are read chunk by chunk.

The HDF5 library runs one thread at a time. Forebay therefore asks the library only where chunks are stored, and threads
of Forebay read and inflate the chunks in parallel. This works for chunks without a filter, and for chunks with the
deflate filter, the byte shuffle filter or both. The library itself reads all other datasets, such as those with other
filters or in other files.
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
from forebay.sources.formats.hdf5_chunks import Hdf5Chunks, can_decompress, stores_numpy_values

__all__ = ["open_hdf5"]

_H5PY_READ_NBYTES = 1 << 20  # bytes per read of the HDF5 library, for a dataset without chunks


def open_hdf5(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "/",
    max_held_nbytes: int = 2**30,
) -> ColumnsSource:
    """Open one HDF5 file as a source, without reading its data.

    A row is a dict with one array per dataset. The keys are names such as `x` or `train/x`.

    `members=["x", "y"]` selects datasets. `group="train"` opens only that group. With `spec=`, the names of its leaves
    select datasets, which must match the spec. A chunk is decompressed when its rows are first needed. At most
    `max_held_nbytes` of decompressed chunks stay in memory, but at least 4 chunks per dataset.
    """
    mapped_file = MappedFile(path)
    with _open_h5_file(mapped_file.path) as h5_file:
        datasets = _find_datasets(mapped_file.path, h5_file, group)
        names = select_members(mapped_file.path, "dataset", list(datasets), members=members, spec=spec)
        columns = [_open_column(mapped_file, h5_file, name, datasets[name]) for name in names]
        file = FileHandle(mapped_file.path, mapped_file.check_size, h5_file.close)
        return ColumnsSource(file, columns, dict_structure(names), spec=spec, max_held_nbytes=max_held_nbytes)


@contextmanager
def _open_h5_file(path: Path) -> Iterator[Any]:
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


def _find_datasets(path: Path, h5_file: Any, group: str) -> dict[str, Any]:
    """Return all datasets in a group by name, in the order of h5py."""
    group_node = h5_file.get(group)
    if not isinstance(group_node, h5py.Group):
        raise SourceError(f"{path} has no group {group!r}. It has {', '.join(map(repr, h5_file)) or 'nothing'}.")
    datasets: dict[str, Any] = {}
    group_node.visititems(lambda name, node: datasets.update({name: node}) if isinstance(node, h5py.Dataset) else None)
    return datasets


def _open_column(mapped_file: MappedFile, h5_file: Any, name: str, dataset: Any) -> ColumnProtocol:
    if not dataset.shape:
        raise SourceError(
            f"{name!r} in {mapped_file.path} is a single value, not rows. Choose others with members=[...]."
        )
    if dataset.dtype.hasobject:
        raise SourceError(
            f"{name!r} in {mapped_file.path} holds strings or lists of any length ({dataset.dtype}), which have no "
            "fixed shape. Choose others with members=[...], or store it as numbers."
        )
    spec = ArraySpec(dataset.shape[1:], dataset.dtype)
    if not (stores_numpy_values(dataset) and h5_file.userblock_size == 0):
        return _open_with_h5py(spec, dataset, mapped_file.path)
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        if offset is None:  # nothing was written, or the data is inside the header
            return _open_with_h5py(spec, dataset, mapped_file.path)
        return MappedColumn(mapped_file.array(dataset.shape, dataset.dtype, offset=offset))
    return _open_chunks(mapped_file, spec, name, dataset)


def _open_chunks(mapped_file: MappedFile, spec: ArraySpec, name: str, dataset: Any) -> ColumnProtocol:
    if not can_decompress(dataset):
        return _open_with_h5py(spec, dataset, mapped_file.path)
    chunks = Hdf5Chunks(mapped_file, name, dataset)
    boundaries = _chunk_boundaries(len(dataset), dataset.chunks[0])
    offsets = chunks.find_row_offsets()
    if offsets is None:
        return ChunkedColumn(spec, boundaries, chunks.decompress)
    memory = mapped_file.array((mapped_file.nbytes,), np.dtype(np.uint8), offset=0)
    return SegmentedColumn(spec, boundaries, memory, offsets, is_swapped=not dataset.dtype.isnative)


def _open_with_h5py(spec: ArraySpec, dataset: Any, path: Path) -> ChunkedColumn:
    """Return a column that h5py reads, one thread at a time.

    h5py supports all filters, including plug-ins.
    """
    chunk_rows = dataset.chunks[0] if dataset.chunks else max(1, _H5PY_READ_NBYTES // max(1, spec.nbytes))
    boundaries = _chunk_boundaries(len(dataset), chunk_rows)

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


def _chunk_boundaries(length: int, chunk_rows: int) -> Any:
    """Return the first row of each chunk, then the number of rows."""
    return np.append(np.arange(0, length, chunk_rows, dtype=np.int64), length)
