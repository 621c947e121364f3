"""Zarr stores, version 3 and 2: arrays are unpacked chunk by chunk, by zarr itself and whatever codecs it knows.

Zarr reads and decodes in threads of its own, so several gathers are served at once. Of a sharded array a whole shard
is read at a time, unless that is too much: one call of zarr's takes as long as unpacking some hundred KiB.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from forebay.core.spec import Array, ArraySpec, Structure, Tree
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.files.chunked import ChunkedLeaf
from forebay.sources.files.columns import LeavesSource, OpenFile, choose_members, named
from forebay.sources.files.mapped import PathName

__all__ = ["open_zarr"]

_SHARD_NBYTES = 32 << 20  # unpacked: larger ones are read chunk by chunk


def open_zarr(
    path: PathName,
    *,
    spec: Tree | None = None,
    members: Sequence[str] | None = None,
    group: str = "",
    max_held_nbytes: int = 2**30,
) -> LeavesSource:
    """Open one store, a folder ending in `.zarr`: a dict of its arrays by name, or a lone array; no data is read.

    `members=["x", "y"]` takes only those, `group="train"` what lies below a group. With `spec=`, arrays are found by
    the names of its leaves and checked against it. Chunks are unpacked as their rows are first asked for, and at most
    `max_held_nbytes` of them are held.
    """
    path = Path(path)
    found = _find(path, group)
    file = OpenFile(path, lambda: _check_there(path), lambda: None)
    if isinstance(found, zarr.Array):
        leaf = _open_leaf(path, "array", found)
        return LeavesSource(file, [leaf], Structure(None), spec=spec, max_held_nbytes=max_held_nbytes)
    chosen = choose_members(path, "array", sorted(found), members=members, spec=spec)
    leaves = [_open_leaf(path, name, found[name]) for name in chosen]
    return LeavesSource(file, leaves, named(chosen), spec=spec, max_held_nbytes=max_held_nbytes)


def _find(path: Path, group: str) -> Any:
    """An array, or a dict of all arrays below."""
    _check_there(path)
    try:
        node = zarr.open(str(path), mode="r", path=group or None)
        if isinstance(node, zarr.Array):
            return node
        return {name: array for name, array in node.members(max_depth=None) if isinstance(array, zarr.Array)}
    except Exception as error:  # a damaged or missing description makes zarr raise anything
        what = f"group {group!r} of {path}" if group else str(path)
        raise SourceError(f"{what} cannot be read as Zarr: {error}. Write or download it again.") from error


def _check_there(path: Path) -> None:
    """Chunks that are not there stand for the fill value, so a store that is gone would read as a full one."""
    if not path.exists():
        raise SourceChangedError(f"{path} is not there: a Zarr store must stay where it is while it is fed.")


def _open_leaf(path: Path, name: str, array: Any) -> ChunkedLeaf:
    if not array.shape:
        raise SourceError(f"{name!r} in {path} is a single value, not rows: choose others with members=[...].")
    if array.dtype.hasobject:
        raise SourceError(
            f"{name!r} in {path} holds {array.dtype}, which has no fixed shape: choose others with members=[...], "
            "or store it as numbers."
        )
    spec = ArraySpec(array.shape[1:], array.dtype)
    rows = _rows_at_once(array, spec)
    starts = np.append(np.arange(0, array.shape[0], rows, dtype=np.int64), array.shape[0])

    def unpack(chunk: int, target: Array) -> None:
        first = int(starts[chunk])
        try:
            target[...] = array[first : first + len(target)]
        except Exception as error:  # each codec has errors of its own
            told = f"{name!r} in {path}, rows {first} to {first + len(target) - 1}, cannot be unpacked: {error}"
            raise SourceError(f"{told}. Write or download it again.") from error

    return ChunkedLeaf(spec, starts, unpack)


def _rows_at_once(array: Any, spec: ArraySpec) -> int:
    shard_rows: int = array.shards[0] if array.shards else 0
    return shard_rows if 0 < shard_rows * spec.nbytes <= _SHARD_NBYTES else int(array.chunks[0])
