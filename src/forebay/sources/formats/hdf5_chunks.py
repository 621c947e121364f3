"""The chunks of one HDF5 dataset, read from the mapped file without the HDF5 library.

The module supports chunks without a filter, and chunks with the deflate filter, the byte shuffle filter or both.

A chunk may contain only a part of each of its rows. The chunks that contain the same rows form one chunk row.
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
from forebay.sources.formats.hdf5_filters import list_filters
from forebay.sources.formats.inflate_limit import decompress_limited

__all__ = ["Hdf5Chunks", "can_decompress", "stores_numpy_values"]

_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def stores_numpy_values(dataset: Any) -> bool:
    """Return whether the file of a dataset stores its values in NumPy's binary form."""
    if dataset.is_virtual or dataset.external:
        return False
    try:
        return bool(h5py.h5t.py_create(dataset.dtype, logical=True) == dataset.id.get_type())
    except TypeError:
        return False


def can_decompress(dataset: Any) -> bool:
    """Return whether this module supports all filters of a dataset."""
    return all(code in (_DEFLATE, _SHUFFLE) for code, _ in list_filters(dataset))


class Hdf5Chunks:
    """Finds and decompresses the chunks of one dataset.

    A chunk is identified by the indices of its first element.
    """

    def __init__(self, file: MappedFile, name: str, dataset: Any) -> None:
        self._file, self._name, self._dataset = file, name, dataset
        self._shape, self._chunk_shape, self._dtype = dataset.shape, dataset.chunks, dataset.dtype
        self._filters, self._fill_value = list_filters(dataset), dataset.fillvalue
        self._chunk_nbytes = int(np.prod(self._chunk_shape)) * self._dtype.itemsize
        # First index of each chunk of a chunk row, along each axis after the first.
        self._axis_starts = [
            range(0, length, chunk) for length, chunk in zip(self._shape[1:], self._chunk_shape[1:], strict=True)
        ]
        self._lock = threading.Lock()
        self._infos: dict[tuple[int, ...], Any] | None = None

    def find_row_offsets(self) -> Array | None:
        """Return the file offset of the first row of each chunk.

        Return None if a chunk has a filter, contains only parts of rows, was never written or exceeds the file.
        """
        if self._filters or self._chunk_shape[1:] != self._shape[1:]:
            return None
        infos = self._chunk_infos()
        if len(infos) < -(-self._shape[0] // self._chunk_shape[0]):
            return None  # a chunk that was never written has the fill value and no offset
        starts = [(row, *(0,) * (len(self._shape) - 1)) for row in range(0, self._shape[0], self._chunk_shape[0])]
        if not starts or any(start not in infos for start in starts):
            return None
        offsets = np.asarray([infos[start].byte_offset for start in starts], np.int64)
        return offsets if int(offsets.max()) + self._chunk_nbytes <= self._file.nbytes else None

    def decompress(self, number: int, target: Array) -> None:
        """Write the rows of chunk row `number` to `target`."""
        first = number * self._chunk_shape[0]
        for starts in itertools.product(*self._axis_starts):
            slices = [slice(start, start + size) for start, size in zip(starts, self._chunk_shape[1:], strict=True)]
            region = target[(slice(None), *slices)]
            info = self._chunk_infos().get((first, *starts))
            if info is None:
                region[...] = self._fill_value
            else:
                chunk = self._read_chunk(info, (first, *starts))
                region[...] = chunk[tuple(map(slice, region.shape))]

    def _chunk_infos(self) -> dict[tuple[int, ...], Any]:
        """Return h5py's `StoreInfo` of each chunk in the file. Only the first call queries h5py."""
        with self._lock:
            if self._infos is None:
                infos: dict[tuple[int, ...], Any] = {}
                if self._dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_NOT_ALLOCATED:
                    self._list_chunks(infos)
                self._infos = infos
            return self._infos

    def _list_chunks(self, infos: dict[tuple[int, ...], Any]) -> None:
        # A chunk takes at least one byte of the file, or all its bytes if it has no filter. A file that lists more
        # chunks is damaged, and its list could exhaust the memory.
        max_chunks = self._file.nbytes // (1 if self._filters else max(1, self._chunk_nbytes))

        def add(info: Any) -> None:
            if len(infos) >= max_chunks:
                raise ValueError(f"it has more than {max_chunks} chunks, which the file cannot contain")
            infos[info.chunk_offset] = info

        try:
            self._dataset.id.chunk_iter(add)
        except Exception as error:
            raise SourceError(
                f"the chunks of {self._name!r} in {self._file.path} cannot be found: {error}. "
                "Write or download the file again."
            ) from error

    def _read_chunk(self, info: Any, start: tuple[int, ...]) -> Array:
        if info.byte_offset + info.size > self._file.nbytes:
            raise self._damage_error(start, f"it ends after the end of the file ({self._file.nbytes} bytes)")
        data: Any = self._file.array((info.size,), np.dtype(np.uint8), offset=info.byte_offset)
        is_shuffled = False
        for number, (code, _) in reversed(list(enumerate(self._filters))):
            if info.filter_mask >> number & 1:
                continue  # the writer skipped this filter, for example because the chunk did not become smaller
            if code == _DEFLATE:
                data = self._inflate(data, start)
            else:
                is_shuffled = True
        if len(data) != self._chunk_nbytes:
            raise self._damage_error(start, f"it has {len(data)} bytes instead of {self._chunk_nbytes}")
        values = _unshuffle(data, self._dtype.itemsize) if is_shuffled else np.frombuffer(data, np.uint8)
        chunk: Array = values.view(self._dtype).reshape(self._chunk_shape)
        return chunk

    def _inflate(self, data: Any, start: tuple[int, ...]) -> bytes:
        """Inflate a chunk without holding the GIL.

        The caller verifies the length of the result.
        """
        try:
            return decompress_limited(isal_zlib.decompressobj, data, self._chunk_nbytes)
        except (ValueError, isal_zlib.error) as error:  # type: ignore[misc]  # the stubs declare an instance
            raise self._damage_error(start, str(error)) from error

    def _damage_error(self, start: tuple[int, ...], reason: str) -> SourceError:
        return SourceError(
            f"the chunk of {self._name!r} in {self._file.path} that begins at {start} cannot be decompressed: "
            f"{reason}. Write or download the file again."
        )


def _unshuffle(data: Any, itemsize: int) -> Array:
    """Undo the shuffle filter.

    The filter stores the first bytes of all values, then the second bytes, and so on.
    """
    planes = np.frombuffer(data, np.uint8).reshape(itemsize, -1)
    return np.ascontiguousarray(planes.T).reshape(-1)
