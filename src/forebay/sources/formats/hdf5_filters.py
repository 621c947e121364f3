"""Limits on the memory that filters of the HDF5 library use.

The library calls a filter without a limit, so a chunk of a few MiB could decompress to gigabytes. `FilterLimits` checks
chunks before the library reads them.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import h5py
import numpy as np
from isal import isal_zlib

from forebay.sources.formats.inflate_limit import declared_nbytes, decompress_limited

__all__ = ["FilterLimits", "list_filters"]

_DEFLATE, _FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32
_PLUGINS = {32001: "blosc", 32015: "zstd"}  # registered number of a filter -> codec
_CHECKSUM_NBYTES = 4  # of fletcher32, at the end of a chunk
_MAX_RATIO = 1032  # maximum compression ratio of deflate
_SLACK_NBYTES = 64 * 1024  # bytes for headers and checksums


class FilterLimits:
    """Checks the chunks of one dataset before the HDF5 library decompresses them."""

    def __init__(self, dataset: Any, max_nbytes: int) -> None:
        """Make `validate` ignore chunks that cannot decompress to more than `max_nbytes`."""
        self._dataset, self._max_nbytes = dataset, max_nbytes
        self._codes = [code for code, _ in list_filters(dataset)] if dataset.chunks else []
        self._has_compression = any(map(_is_compression, self._codes))
        chunk_nbytes = int(np.prod(dataset.chunks or (1,), dtype=object)) * dataset.dtype.itemsize
        # A tolerance: filters before the compression may add bytes, as scaleoffset adds a header.
        self._limit_nbytes = 2 * chunk_nbytes + _SLACK_NBYTES

    def validate(self, first_row: int) -> None:
        """Raise ValueError if a chunk that begins at `first_row` decompresses to too many bytes.

        The limit is about twice the bytes of the values of a chunk.
        """
        for start in self._chunk_starts(first_row) if self._has_compression else ():
            info = self._dataset.id.get_chunk_info_by_coord(start)
            applied = self._applied_codes(info.filter_mask)
            if any(map(_is_compression, applied)) and self._largest_nbytes(info.size, applied) > self._max_nbytes:
                self._validate_content(start, applied)

    def _chunk_starts(self, first_row: int) -> Iterator[tuple[int, ...]]:
        axes = zip(self._dataset.shape[1:], self._dataset.chunks[1:], strict=True)
        return product((first_row,), *(range(0, length, chunk) for length, chunk in axes))

    def _applied_codes(self, filter_mask: int) -> list[int]:
        """Return the codes of the filters that were applied to a chunk.

        A set bit of the mask means that the writer skipped the filter.
        """
        return [code for number, code in enumerate(self._codes) if not filter_mask >> number & 1]

    @staticmethod
    def _largest_nbytes(stored_nbytes: int, applied: Sequence[int]) -> float:
        """Return the largest decompressed size of a chunk; infinity for codecs other than deflate."""
        compressions = list(filter(_is_compression, applied))
        if not set(compressions) <= {_DEFLATE}:
            return np.inf if stored_nbytes else 0
        return float(stored_nbytes * _MAX_RATIO ** len(compressions))

    def _validate_content(self, start: tuple[int, ...], applied: Sequence[int]) -> None:
        _, chunk = self._dataset.id.read_direct_chunk(start)
        data = memoryview(chunk)
        while applied[-1:] == [_FLETCHER32]:
            applied, data = applied[:-1], data[: len(data) - _CHECKSUM_NBYTES]
        if sum(map(_is_compression, applied)) > 1 or not _is_compression(applied[-1]):
            raise ValueError(f"a chunk of {len(data)} bytes could decompress to more than {self._max_nbytes} bytes")
        if applied[-1] == _DEFLATE:
            decompress_limited(isal_zlib.decompressobj, data, self._limit_nbytes)
            return
        nbytes = declared_nbytes(_PLUGINS[applied[-1]], data)
        if nbytes > self._limit_nbytes:
            raise ValueError(f"a chunk decompresses to {nbytes} bytes, and the limit is {self._limit_nbytes}")


def _is_compression(code: int) -> bool:
    return code == _DEFLATE or code in _PLUGINS


def list_filters(dataset: Any) -> list[tuple[int, Any]]:
    """Return (code, parameters) of each filter, in the order of the writer."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(number)[::2] for number in range(properties.get_nfilters())]
