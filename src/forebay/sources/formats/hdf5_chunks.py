"""The chunks of one HDF5 dataset, read without the HDF5 library.

The module reads plain, byte-shuffled and deflated chunks from the mapped file.

A chunk may be narrower than a row. The chunks that hold the same rows form one row of chunks.
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

__all__ = ["Hdf5Chunks", "can_decompress", "is_plain"]

_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def is_plain(dataset: Any) -> bool:
    """Tell whether the values are in this file, in the representation of NumPy."""
    if dataset.is_virtual or dataset.external:
        return False
    try:
        return bool(h5py.h5t.py_create(dataset.dtype, logical=True) == dataset.id.get_type())
    except TypeError:
        return False


def can_decompress(dataset: Any) -> bool:
    """Tell whether this module supports all filters of the dataset."""
    return all(code in (_DEFLATE, _SHUFFLE) for code, _ in _list_filters(dataset))


class Hdf5Chunks:
    """The chunks of one dataset, by the position of their first element."""

    def __init__(self, file: MappedFile, name: str, dataset: Any) -> None:
        self._file, self._name, self._dataset = file, name, dataset
        self._shape, self._chunk_shape, self._dtype = dataset.shape, dataset.chunks, dataset.dtype
        self._filters, self._fill_value = _list_filters(dataset), dataset.fillvalue
        self._chunk_nbytes = int(np.prod(self._chunk_shape)) * self._dtype.itemsize
        # Positions of the chunks of one row of chunks, along each axis after the first.
        self._column_starts = [
            range(0, length, chunk) for length, chunk in zip(self._shape[1:], self._chunk_shape[1:], strict=True)
        ]
        self._lock = threading.Lock()
        self._positions: dict[tuple[int, ...], Any] | None = None

    def plain_offsets(self) -> Array | None:
        """Return the file offset of each chunk, if chunks are plain rows.

        Return None unless all chunks hold complete rows and have no filter.
        """
        if self._filters or self._chunk_shape[1:] != self._shape[1:]:
            return None
        index = self._index()
        starts = [(row, *(0,) * (len(self._shape) - 1)) for row in range(0, self._shape[0], self._chunk_shape[0])]
        if not starts or any(start not in index for start in starts):
            return None  # chunks that were never written hold the fill value
        offsets = np.asarray([index[start].byte_offset for start in starts], np.int64)
        return offsets if offsets.max() + self._chunk_nbytes <= self._file.nbytes else None

    def decompress(self, number: int, target: Array) -> None:
        """Write the rows of one row of chunks to `target`."""
        first = number * self._chunk_shape[0]
        for starts in itertools.product(*self._column_starts):
            part = tuple(slice(start, start + size) for start, size in zip(starts, self._chunk_shape[1:], strict=True))
            region = target[(slice(None), *part)]
            info = self._index().get((first, *starts))
            if info is None:
                region[...] = self._fill_value
            else:
                chunk = self._read(info, (first, *starts))
                region[...] = chunk[tuple(map(slice, region.shape))]

    def _index(self) -> dict[tuple[int, ...], Any]:
        """Return the position of every chunk; query the library only once."""
        with self._lock:
            if self._positions is None:
                found: dict[tuple[int, ...], Any] = {}
                if self._dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED:
                    self._list_chunks(found)
                self._positions = found
            return self._positions

    def _list_chunks(self, found: dict[tuple[int, ...], Any]) -> None:
        try:
            self._dataset.id.chunk_iter(lambda info: found.update({info.chunk_offset: info}))
        except Exception as error:
            raise SourceError(
                f"the chunks of {self._name!r} in {self._file.path} cannot be found: {error}. "
                "Write or download the file again."
            ) from error

    def _read(self, info: Any, start: tuple[int, ...]) -> Array:
        if info.byte_offset + info.size > self._file.nbytes:
            raise self._damaged(start, f"it ends after the {self._file.nbytes} bytes of the file")
        data: Any = self._file.array((info.size,), np.dtype(np.uint8), offset=info.byte_offset)
        is_shuffled = False
        for number, (code, _) in reversed(list(enumerate(self._filters))):
            if info.filter_mask >> number & 1:
                continue  # the writer skipped this filter, for example because the chunk would not have shrunk
            if code == _DEFLATE:
                data = self._inflate(data, start)
            else:
                is_shuffled = True
        if len(data) != self._chunk_nbytes:
            raise self._damaged(start, f"it has {len(data)} bytes instead of {self._chunk_nbytes}")
        values = _unshuffle(data, self._dtype.itemsize) if is_shuffled else np.frombuffer(data, np.uint8)
        chunk: Array = values.view(self._dtype).reshape(self._chunk_shape)
        return chunk

    def _inflate(self, data: Any, start: tuple[int, ...]) -> bytes:
        """Inflate without the GIL.

        The caller checks the length, which detects a chunk that is too long.
        """
        try:
            inflated: bytes = isal_zlib.decompress(data, bufsize=self._chunk_nbytes)
        except isal_zlib.error as error:  # type: ignore[misc]  # an instance, according to its stubs
            raise self._damaged(start, str(error)) from error
        return inflated

    def _damaged(self, start: tuple[int, ...], reason: str) -> SourceError:
        return SourceError(
            f"the chunk of {self._name!r} in {self._file.path} that begins at {start} cannot be decompressed: "
            f"{reason}. Write or download the file again."
        )


def _list_filters(dataset: Any) -> list[tuple[int, Any]]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(number)[::2] for number in range(properties.get_nfilters())]


def _unshuffle(data: Any, itemsize: int) -> Array:
    """Undo the shuffle filter, which stores bytes of equal significance together."""
    planes = np.frombuffer(data, np.uint8).reshape(itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1)
