"""HDF5 files: plain datasets are gathered from the mapped file, compressed ones are unpacked chunk by chunk.

The HDF5 library lets one thread in at a time. So it is asked where things lie, and the bytes are read and inflated
here, in as many threads as gather: chunks that are deflated, byte-shuffled or plain. Chunks of any other
filter, and datasets that are put together from other files, are read by the library itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from forebay.core.spec import Array, ArraySpec, Tree
from forebay.errors import ForebayError, SourceError
from forebay.sources.files.chunked import ChunkedLeaf
from forebay.sources.files.columns import Leaf, LeavesSource, MappedLeaf, OpenFile, choose_members, named
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import PiecesLeaf
from forebay.sources.formats.hdf5_chunks import Tiles, can_unpack, is_plain

__all__ = ["open_hdf5"]

_RUN_NBYTES = 1 << 20  # read by the library at a time where there are no chunks


def open_hdf5(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "/",
    max_held_nbytes: int = 2**30,
) -> LeavesSource:
    """Open one HDF5 file as a dict of its datasets, by name, such as `x` or `train/x`; no data is read.

    `members=["x", "y"]` takes only those, `group="train"` what lies below a group. With `spec=`, datasets are found by
    the names of its leaves and checked against it. Chunks are unpacked as their rows are first asked for, and at most
    `max_held_nbytes` of them are held.
    """
    mapped = MappedFile(path)
    with _opened(mapped.path) as library:
        found = _find(mapped.path, library, group)
        chosen = choose_members(mapped.path, "dataset", list(found), members=members, spec=spec)
        leaves = [_open_leaf(mapped, library, name, found[name]) for name in chosen]
        file = OpenFile(mapped.path, mapped.check, library.close)
        return LeavesSource(file, leaves, named(chosen), spec=spec, max_held_nbytes=max_held_nbytes)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as the library has it, left open unless the block fails."""
    library = None
    try:
        library = h5py.File(path, "r")
        yield library
    except BaseException as error:
        if library is not None:
            library.close()
        if isinstance(error, ForebayError) or not isinstance(error, Exception):
            raise
        # A damaged file makes the library raise anything from OSError to RuntimeError.
        raise SourceError(f"{path} cannot be read as HDF5: {error}. Write or download it again.") from error


def _find(path: Path, library: Any, group: str) -> dict[str, Any]:
    """Every dataset below the group, in the file's own order."""
    top = library.get(group)
    if not isinstance(top, h5py.Group):
        raise SourceError(f"{path} has no group {group!r}: it has {', '.join(map(repr, library)) or 'nothing'}.")
    found: dict[str, Any] = {}
    top.visititems(lambda name, node: found.update({name: node}) if isinstance(node, h5py.Dataset) else None)
    return found


def _open_leaf(mapped: MappedFile, library: Any, name: str, dataset: Any) -> Leaf:
    if not dataset.shape:
        raise SourceError(f"{name!r} in {mapped.path} is a single value, not rows: choose others with members=[...].")
    if dataset.dtype.hasobject:
        raise SourceError(
            f"{name!r} in {mapped.path} holds strings or lists of any length ({dataset.dtype}), which have no fixed "
            "shape: choose others with members=[...], or store it as numbers."
        )
    spec = ArraySpec(dataset.shape[1:], dataset.dtype)
    if not (is_plain(dataset) and library.userblock_size == 0):
        return _by_library(spec, dataset, mapped.path)
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        if offset is None:  # nothing was ever written, or it lies in the header
            return _by_library(spec, dataset, mapped.path)
        return MappedLeaf(mapped.array(dataset.shape, dataset.dtype, offset=offset))
    return _open_chunks(mapped, spec, name, dataset)


def _open_chunks(mapped: MappedFile, spec: ArraySpec, name: str, dataset: Any) -> Leaf:
    if not can_unpack(dataset):
        return _by_library(spec, dataset, mapped.path)
    tiles = Tiles(mapped, name, dataset)
    starts = _starts(len(dataset), dataset.chunks[0])
    offsets = tiles.whole_offsets()
    if offsets is None:
        return ChunkedLeaf(spec, starts, tiles.unpack)
    memory = mapped.array((mapped.nbytes,), np.dtype(np.uint8), offset=0)
    return PiecesLeaf(spec, starts, memory, offsets, swapped=not dataset.dtype.isnative)


def _by_library(spec: ArraySpec, dataset: Any, path: Path) -> ChunkedLeaf:
    """Read by h5py, one thread at a time, which also knows filters that were plugged into it."""
    rows = dataset.chunks[0] if dataset.chunks else max(1, _RUN_NBYTES // max(1, spec.nbytes))
    starts = _starts(len(dataset), rows)

    def unpack(chunk: int, target: Array) -> None:
        first = int(starts[chunk])
        try:
            dataset.read_direct(target, np.s_[first : first + len(target)])
        except Exception as error:
            told = f"{dataset.name!r} in {path}, rows {first} to {first + len(target) - 1}"
            raise SourceError(
                f"{told}, cannot be unpacked: {error}. A filter may be missing: import hdf5plugin first."
            ) from error

    return ChunkedLeaf(spec, starts, unpack, f"{dataset.name!r} by h5py itself, one thread at a time")


def _starts(length: int, rows: int) -> Any:
    return np.append(np.arange(0, length, rows, dtype=np.int64), length)
