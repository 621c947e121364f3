"""Zarr stores (formats 2 and 3) as a source.

The zarr library decompresses arrays chunk by chunk. It reads and decodes in its own threads, so several gathers may
call it at once. Each call takes a fixed time, in which zarr could decompress several hundred KiB. Forebay therefore
reads a sharded array one shard at a time, unless its shards are too large.

The metadata may come from an untrusted store. Forebay checks the names of the codecs and all claimed sizes before it
reads a chunk.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr

from forebay.core.spec import Array, ArraySpec, Structure, Tree
from forebay.errors import ForebayError, SourceChangedError, SourceError
from forebay.sources.files.chunk_budget import ChunkBudget, ChunkClaim
from forebay.sources.files.chunked import ChunkBoundaries, ChunkedColumn
from forebay.sources.files.columns import ColumnsSource, FileHandle, dict_structure, select_members
from forebay.sources.files.external_files import ExternalFiles, reads_external_files
from forebay.sources.files.held_budget import HeldBudget
from forebay.sources.files.mapped import PathName
from forebay.sources.formats.zarr_codecs import describe_codecs, validate_codecs
from forebay.sources.formats.zarr_limits import limit_codecs
from forebay.sources.formats.zarr_store import CheckedStore

__all__ = ["open_zarr"]

_MAX_SHARD_NBYTES = 32 << 20  # decompressed bytes of the rows of a shard; larger shards are read chunk by chunk


def open_zarr(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "",
    codecs: Collection[str] = (),
    external_files: ExternalFiles = "refuse",
    max_held_nbytes: int | None = None,
) -> ColumnsSource:
    """Open one store, a folder that ends in `.zarr`, without reading data.

    A row is a dict of arrays by name, or a single array if the store is one array. `members=["x", "y"]` selects arrays.
    `group="train"` opens only that group. With `spec=`, the names of its leaves select arrays, which must match the
    spec.

    Forebay reads all codecs of zarr and numcodecs that are known to be safe. `codecs=["name"]` adds others. Pass only
    codecs that you trust with this store. Symbolic links that lead out of the store are refused, unless you pass
    `external_files="read"`.

    A chunk is decompressed when its rows are first needed. Up to `max_held_nbytes` of decompressed chunks stay in
    memory (1 GiB for None). The cache always has room for 4 chunks of each array. A store is refused if these chunks
    need more memory than the limit, which `HeldBudget.of` computes. For None, the limit is half of the memory of this
    machine, but at least 1 GiB.
    """
    path, budget = Path(path), HeldBudget.of(max_held_nbytes)
    store = CheckedStore(path, budget.max_nbytes, follows_links=reads_external_files(external_files))
    node = _find_arrays(store, group, codecs)
    handle = FileHandle(path, lambda: _validate_exists(path), lambda: None)
    chunk_budget, nbytes = ChunkBudget(budget), budget.cached_nbytes
    if isinstance(node, zarr.Array):
        column = _open_column(f"'array' in {path}", node, codecs, chunk_budget)
        return ColumnsSource(handle, [column], Structure(None), spec=spec, max_held_nbytes=nbytes)
    names = select_members(path, "array", sorted(node), members=members, spec=spec)
    columns = [_open_column(f"{name!r} in {path}", node[name], codecs, chunk_budget) for name in names]
    return ColumnsSource(handle, columns, dict_structure(names), spec=spec, max_held_nbytes=nbytes)


def _find_arrays(store: CheckedStore, group: str, codecs: Collection[str]) -> Any:
    """Return a single array, or a dict of all arrays in the group."""
    _validate_exists(store.root)
    node_name = f"group {group!r} of {store.root}" if group else str(store.root)
    try:
        with _convert_errors(node_name):
            node = zarr.open(store, mode="r", path=group or None)
            if isinstance(node, zarr.Array):
                return node
            return {name: array for name, array in node.members(max_depth=None) if isinstance(array, zarr.Array)}
    except SourceError:
        if store.error is not None:
            raise store.error from None
        validate_codecs(node_name, store.codec_names, codecs)  # the error of zarr may not name the codec
        raise


@contextmanager
def _convert_errors(name: str) -> Iterator[None]:
    """Convert errors of zarr to SourceError.

    For damaged or missing metadata, zarr raises many kinds of errors.
    """
    try:
        yield
    except ForebayError:
        raise
    except Exception as error:
        raise SourceError(f"{name} cannot be read as Zarr: {error}. Write or download it again.") from error


def _validate_exists(path: Path) -> None:
    """Raise an error if the store does not exist.

    zarr would return the fill value for all chunks of a missing store.
    """
    if not path.exists():
        raise SourceChangedError(
            f"{path} does not exist. Check the path. Do not move a Zarr store while a feed reads it."
        )


def _open_column(name: str, array: Any, codecs: Collection[str], budget: ChunkBudget) -> ChunkedColumn:
    """Return the column of one array. `name` names the array and its store."""
    with _convert_errors(name):
        _validate_rows(name, array)
        validate_codecs(name, [codec for codec, _ in describe_codecs(array.metadata)], codecs)
        boundaries = _validate_chunks(name, array, budget)
        spec, array = ArraySpec(array.shape[1:], array.dtype), limit_codecs(array, name)

    def decompress(chunk: int, target: Array) -> None:
        first = int(boundaries[chunk])
        try:
            target[...] = array[first : first + len(target)]
        except Exception as error:  # each codec has its own errors
            raise SourceError(
                f"{name}, rows {first} to {first + len(target) - 1}, cannot be decompressed: {error}. "
                "Write or download it again."
            ) from error

    return ChunkedColumn(spec, boundaries, decompress)


def _validate_rows(name: str, array: Any) -> None:
    if not array.shape:
        raise SourceError(f"{name} is a single value, not rows. Choose other arrays with members=[...].")
    if array.dtype.hasobject:
        raise SourceError(
            f"{name} holds {array.dtype}, which has no fixed shape. Choose other arrays with members=[...], "
            "or store it as numbers."
        )


def _validate_chunks(name: str, array: Any, budget: ChunkBudget) -> ChunkBoundaries:
    """Return the first row of each read, then the number of rows.

    Raise an error if the claimed sizes exceed the budget.
    """
    shards = [ChunkClaim(name, array.shards, array.dtype, array.chunks, array.shards[0])] if array.shards else []
    for shard in shards:  # even for one chunk, zarr decodes the index of a whole shard
        budget.validate_read(shard)
    return budget.boundaries(
        ChunkClaim(name, array.shape, array.dtype, array.chunks, rows_per_read=_choose_rows_per_read(array))
    )


def _choose_rows_per_read(array: Any) -> int:
    """Return the number of rows to read at a time.

    These are the rows of a shard. If the array has no shards, or too large ones, they are the rows of a chunk.
    """
    shard_rows: int = array.shards[0] if array.shards else 0
    row_nbytes = math.prod(array.shape[1:]) * array.dtype.itemsize
    return shard_rows if 0 < shard_rows * row_nbytes <= _MAX_SHARD_NBYTES else int(array.chunks[0])
