"""Zarr stores (formats 2 and 3) as a source.

The zarr library decompresses arrays chunk by chunk, with all its codecs. It reads and decodes in its own threads, so
several gathers may call it at once. Each call takes a fixed time, in which zarr could decompress several hundred KiB. A
sharded array is therefore read one shard at a time, unless its shards are too large.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from forebay.core.spec import Array, ArraySpec, Structure, Tree
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.files.chunked import ChunkedColumn
from forebay.sources.files.columns import ColumnsSource, FileHandle, dict_structure, select_members
from forebay.sources.files.mapped import PathName

__all__ = ["open_zarr"]

_MAX_SHARD_NBYTES = 32 << 20  # decompressed bytes of the rows of a shard; larger shards are read chunk by chunk


def open_zarr(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "",
    max_held_nbytes: int = 2**30,
) -> ColumnsSource:
    """Open one store, a folder that ends in `.zarr`, without reading data.

    A row is a dict of arrays by name, or a single array if the store is one array. `members=["x", "y"]` selects arrays.
    `group="train"` opens only that group. With `spec=`, the names of its leaves select arrays, which must match the
    spec. A chunk is decompressed when its rows are first needed. At most `max_held_nbytes` of decompressed chunks stay
    in memory, but at least 4 chunks per array.
    """
    path = Path(path)
    node = _find_arrays(path, group)
    handle = FileHandle(path, lambda: _validate_exists(path), lambda: None)
    if isinstance(node, zarr.Array):
        column = _open_column(path, "array", node)
        return ColumnsSource(handle, [column], Structure(None), spec=spec, max_held_nbytes=max_held_nbytes)
    names = select_members(path, "array", sorted(node), members=members, spec=spec)
    columns = [_open_column(path, name, node[name]) for name in names]
    return ColumnsSource(handle, columns, dict_structure(names), spec=spec, max_held_nbytes=max_held_nbytes)


def _find_arrays(path: Path, group: str) -> Any:
    """Return a single array, or a dict of all arrays in the group."""
    _validate_exists(path)
    try:
        node = zarr.open(str(path), mode="r", path=group or None)
        if isinstance(node, zarr.Array):
            return node
        return {name: array for name, array in node.members(max_depth=None) if isinstance(array, zarr.Array)}
    except Exception as error:  # for damaged or missing metadata, zarr raises many kinds of errors
        node_name = f"group {group!r} of {path}" if group else str(path)
        raise SourceError(f"{node_name} cannot be read as Zarr: {error}. Write or download it again.") from error


def _validate_exists(path: Path) -> None:
    """Raise an error if the store does not exist.

    zarr would return the fill value for all chunks of a missing store.
    """
    if not path.exists():
        raise SourceChangedError(
            f"{path} does not exist. Check the path. Do not move a Zarr store while a feed reads it."
        )


def _open_column(path: Path, name: str, array: Any) -> ChunkedColumn:
    if not array.shape:
        raise SourceError(f"{name!r} in {path} is a single value, not rows. Choose others with members=[...].")
    if array.dtype.hasobject:
        raise SourceError(
            f"{name!r} in {path} holds {array.dtype}, which has no fixed shape. Choose others with members=[...], "
            "or store it as numbers."
        )
    spec = ArraySpec(array.shape[1:], array.dtype)
    chunk_rows = _choose_chunk_rows(array, spec)
    boundaries = np.append(np.arange(0, array.shape[0], chunk_rows, dtype=np.int64), array.shape[0])

    def decompress(chunk: int, target: Array) -> None:
        first = int(boundaries[chunk])
        try:
            target[...] = array[first : first + len(target)]
        except Exception as error:  # each codec has its own errors
            raise SourceError(
                f"{name!r} in {path}, rows {first} to {first + len(target) - 1}, cannot be decompressed: {error}. "
                "Write or download it again."
            ) from error

    return ChunkedColumn(spec, boundaries, decompress)


def _choose_chunk_rows(array: Any, spec: ArraySpec) -> int:
    """Return the number of rows to read at a time.

    These are the rows of a shard. If the array has no shards, or too large ones, they are the rows of a chunk.
    """
    shard_rows: int = array.shards[0] if array.shards else 0
    return shard_rows if 0 < shard_rows * spec.nbytes <= _MAX_SHARD_NBYTES else int(array.chunks[0])
