"""The chunks of one HDF5 dataset, read from the mapped file without the library: plain, byte-shuffled or deflated.

A chunk may be narrower than a row; those that lie beside each other hold a run of rows together.
"""

import itertools
import threading
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib  # twice as fast as zlib

from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile

__all__ = ["Tiles", "can_unpack", "is_plain"]

_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def is_plain(dataset: Any) -> bool:
    """Whether its values lie in this file, in the very form NumPy has them in."""
    if dataset.is_virtual or dataset.external:
        return False
    try:
        return bool(h5py.h5t.py_create(dataset.dtype, logical=True) == dataset.id.get_type())
    except TypeError:
        return False


def can_unpack(dataset: Any) -> bool:
    """Whether its chunks went through no other filters than those known here."""
    return all(code in (_DEFLATE, _SHUFFLE) for code, _ in _filters(dataset))


class Tiles:
    """Chunks by the rows they begin at."""

    def __init__(self, file: MappedFile, name: str, dataset: Any) -> None:
        self._file, self._name, self._dataset = file, name, dataset
        self._shape, self._chunk, self._dtype = dataset.shape, dataset.chunks, dataset.dtype
        self._filters, self._fill_value = _filters(dataset), dataset.fillvalue
        self._nbytes = int(np.prod(self._chunk)) * self._dtype.itemsize
        self._beside = [range(0, length, chunk) for length, chunk in zip(self._shape[1:], self._chunk[1:], strict=True)]
        self._lock = threading.Lock()
        self._found: dict[tuple[int, ...], Any] | None = None

    def whole_offsets(self) -> Array | None:
        """Where each run of rows begins in the file, if all of them lie there as they are."""
        if self._filters or self._chunk[1:] != self._shape[1:]:
            return None
        index = self._index()
        places = [(row, *(0,) * (len(self._shape) - 1)) for row in range(0, self._shape[0], self._chunk[0])]
        if not places or any(place not in index for place in places):
            return None  # some were never written, and stand for the fill value
        offsets = np.asarray([index[place].byte_offset for place in places], np.int64)
        return offsets if offsets.max() + self._nbytes <= self._file.nbytes else None

    def unpack(self, run: int, target: Array) -> None:
        """Write a run of rows: one chunk, or all that lie beside each other."""
        first = run * self._chunk[0]
        for beside in itertools.product(*self._beside):
            part = tuple(slice(start, start + length) for start, length in zip(beside, self._chunk[1:], strict=True))
            region = target[(slice(None), *part)]
            info = self._index().get((first, *beside))
            if info is None:
                region[...] = self._fill_value
            else:
                tile = self._read(info, (first, *beside))
                region[...] = tile[tuple(map(slice, region.shape))]

    def _index(self) -> dict[tuple[int, ...], Any]:
        """Where every chunk lies, asked for once."""
        with self._lock:
            if self._found is None:
                found: dict[tuple[int, ...], Any] = {}
                if self._dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED:
                    self._list_chunks(found)
                self._found = found
            return self._found

    def _list_chunks(self, found: dict[tuple[int, ...], Any]) -> None:
        try:
            self._dataset.id.chunk_iter(lambda info: found.update({info.chunk_offset: info}))
        except Exception as error:
            told = f"the chunks of {self._name!r} in {self._file.path} cannot be found: {error}"
            raise SourceError(f"{told}. Write or download the file again.") from error

    def _read(self, info: Any, place: tuple[int, ...]) -> Array:
        if info.byte_offset + info.size > self._file.nbytes:
            raise self._damaged(place, f"it should end past the {self._file.nbytes} bytes of the file")
        data: Any = self._file.array((info.size,), np.dtype(np.uint8), offset=info.byte_offset)
        shuffled = False
        for number, (code, _) in reversed(list(enumerate(self._filters))):
            if info.filter_mask >> number & 1:
                continue  # left out for this chunk, as when it would not have shrunk
            if code == _DEFLATE:
                data = self._inflate(data, place)
            else:
                shuffled = True
        if len(data) != self._nbytes:
            raise self._damaged(place, f"it has {len(data)} bytes instead of {self._nbytes}")
        values = _unshuffled(data, self._dtype.itemsize) if shuffled else np.frombuffer(data, np.uint8)
        tile: Array = values.view(self._dtype).reshape(self._chunk)
        return tile

    def _inflate(self, data: Any, place: tuple[int, ...]) -> bytes:
        """Other threads run meanwhile. What inflates to more than a chunk is refused by its length afterwards."""
        try:
            inflated: bytes = isal_zlib.decompress(data, bufsize=self._nbytes)
        except isal_zlib.error as error:  # type: ignore[misc]  # an instance, according to its stubs
            raise self._damaged(place, str(error)) from error
        return inflated

    def _damaged(self, place: tuple[int, ...], why: str) -> SourceError:
        told = f"the chunk of {self._name!r} in {self._file.path} that begins at {place}"
        return SourceError(f"{told} cannot be unpacked: {why}. Write or download the file again.")


def _filters(dataset: Any) -> list[tuple[int, Any]]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(number)[::2] for number in range(properties.get_nfilters())]


def _unshuffled(data: Any, itemsize: int) -> Array:
    """Bytes of one significance lie together: put each value's together again."""
    planes = np.frombuffer(data, np.uint8).reshape(itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1)
