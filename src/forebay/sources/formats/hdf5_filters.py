"""Limits on the memory that filters of the HDF5 library use.

The library calls a filter without a limit, so a chunk of a few MiB could decompress to gigabytes. `FilterLimits` checks
chunks before the library reads them. It knows how much memory the common filters use, and refuses other filters unless
the user trusts them.
"""

import bz2
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import h5py
import numpy as np
from isal import isal_zlib

from forebay.sources.formats.inflate_limit import NewDecompressor, declared_nbytes, decompress_limited

__all__ = ["FilterLimits", "list_filters"]

_Filter: TypeAlias = tuple[int, Sequence[int]]  # registered number, and the parameters that the file states

_DEFLATE, _SHUFFLE, _FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32
_SZIP, _NBIT, _SCALEOFFSET = h5py.h5z.FILTER_SZIP, h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_SCALEOFFSET
# https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
_BZIP2, _LZF, _BLOSC, _LZ4, _BITSHUFFLE, _ZSTD = 307, 32000, 32001, 32004, 32008, 32015
_BITSHUFFLE_CODEC = 4  # index of the parameter of bitshuffle that names a codec; 0 for none

_COMPRESSIONS = {_DEFLATE, _SZIP, _BZIP2, _LZF, _BLOSC, _LZ4, _BITSHUFFLE, _ZSTD}
_LIMITED = _COMPRESSIONS | {_SHUFFLE, _FLETCHER32, _NBIT, _SCALEOFFSET}
_CHECKSUM_NBYTES = 4  # of fletcher32, at the end of a chunk
# Maximum compression ratios. LZF needs 3 bytes for up to 264 bytes.
_MAX_RATIOS = {_DEFLATE: 1032, _LZF: 88}
_NEW_DECOMPRESSORS: dict[int, NewDecompressor] = {_DEFLATE: isal_zlib.decompressobj, _BZIP2: bz2.BZ2Decompressor}
_SLACK_NBYTES = 64 * 1024  # bytes for headers and checksums


class FilterLimits:
    """Checks the chunks of one dataset before the HDF5 library decompresses them."""

    def __init__(self, dataset: Any, max_nbytes: int, trusted: Collection[int] = ()) -> None:
        """Make `validate` ignore chunks that cannot decompress to more than `max_nbytes`.

        `trusted` has the numbers of filters that may use any amount of memory.
        """
        self._dataset, self._max_nbytes = dataset, max_nbytes
        self._filters = list_filters(dataset) if dataset.chunks else []
        self.unlimited = sorted({code for code, _ in self._filters} - _LIMITED - set(trusted))
        self._has_compression = any(map(_is_compression, self._filters))
        chunk_nbytes = int(np.prod(dataset.chunks or (1,), dtype=object)) * dataset.dtype.itemsize
        # A tolerance: filters before the compression may add bytes, as scaleoffset adds a header.
        self._limit_nbytes = 2 * chunk_nbytes + _SLACK_NBYTES
        self._valid_rows: set[int] = set()  # first rows of valid chunks: a check may take longer than decompression

    def validate(self, first_row: int) -> None:
        """Raise ValueError if a chunk that begins at `first_row` decompresses to too many bytes.

        The limit is about twice the bytes of the values of a chunk. Valid chunks are checked only once.
        """
        if first_row in self._valid_rows:
            return
        if self.unlimited:
            raise ValueError(f"Forebay cannot limit the memory of its filter {self.unlimited[0]}")
        self._validate_parameters()
        for start in self._chunk_starts(first_row) if self._has_compression else ():
            info = self._dataset.id.get_chunk_info_by_coord(start)
            applied = self._applied_filters(info.filter_mask)
            if any(map(_is_compression, applied)) and self._largest_nbytes(info.size, applied) > self._max_nbytes:
                self._validate_content(start, applied)
        self._valid_rows.add(first_row)

    def _validate_parameters(self) -> None:
        """Raise ValueError if the parameters of nbit or scaleoffset state too many bytes."""
        for code, parameters in self._filters:
            if code in (_NBIT, _SCALEOFFSET) and len(parameters) > 4:
                self._validate_nbytes(parameters[2] * parameters[4])  # number of values, and bytes of each

    def _validate_nbytes(self, nbytes: int) -> None:
        if nbytes > self._limit_nbytes:
            raise ValueError(f"a chunk decompresses to {nbytes} bytes, and the limit is {self._limit_nbytes}")

    def _chunk_starts(self, first_row: int) -> Iterator[tuple[int, ...]]:
        axes = zip(self._dataset.shape[1:], self._dataset.chunks[1:], strict=True)
        return product((first_row,), *(range(0, length, chunk) for length, chunk in axes))

    def _applied_filters(self, filter_mask: int) -> list[_Filter]:
        """Return the filters that were applied to a chunk.

        A set bit of the mask means that the writer skipped the filter.
        """
        return [each for number, each in enumerate(self._filters) if not filter_mask >> number & 1]

    @staticmethod
    def _largest_nbytes(stored_nbytes: int, applied: Sequence[_Filter]) -> float:
        """Return the largest decompressed size of a chunk; infinity for codecs without a maximum ratio."""
        ratios = [_MAX_RATIOS.get(each[0], np.inf) for each in applied if _is_compression(each)]
        return float(stored_nbytes * np.prod(ratios)) if stored_nbytes else 0

    def _validate_content(self, start: tuple[int, ...], applied: Sequence[_Filter]) -> None:
        _, chunk = self._dataset.id.read_direct_chunk(start)
        data = memoryview(chunk)
        while applied[-1][0] == _FLETCHER32:
            applied, data = applied[:-1], data[: len(data) - _CHECKSUM_NBYTES]
        if sum(map(_is_compression, applied)) > 1 or not _is_compression(applied[-1]):
            raise ValueError(f"a chunk of {len(data)} bytes could decompress to more than {self._max_nbytes} bytes")
        code = applied[-1][0]
        if code in _NEW_DECOMPRESSORS:
            decompress_limited(_NEW_DECOMPRESSORS[code], data, self._limit_nbytes)
        else:
            self._validate_nbytes(_declared_nbytes(code, data))


def _is_compression(applied: _Filter) -> bool:
    code, parameters = applied
    if code == _BITSHUFFLE:
        return any(parameters[_BITSHUFFLE_CODEC : _BITSHUFFLE_CODEC + 1])
    return code in _COMPRESSIONS


def _declared_nbytes(code: int, data: memoryview) -> int:
    """Return the bytes that a filter of the HDF5 library allocates for the result."""
    if code == _SZIP:
        return int.from_bytes(data[:4], "little")
    if code in (_LZ4, _BITSHUFFLE):
        return int.from_bytes(data[:8], "big")
    if code == _LZF:
        return _lzf_nbytes(data)
    return declared_nbytes({_BLOSC: "blosc", _ZSTD: "zstd"}[code], data)


def _lzf_nbytes(data: memoryview) -> int:
    """Return the decompressed size of LZF data. It has no header, so add up the lengths of its parts."""
    total, offset, end = 0, 0, len(data)
    while offset < end:
        control = data[offset]
        if control < 32:  # the next `control + 1` bytes are literal
            total, offset = total + control + 1, offset + control + 2
        elif control < 224:  # a copy of 3 to 8 earlier bytes
            total, offset = total + (control >> 5) + 2, offset + 2
        else:  # a copy of 9 to 264 earlier bytes
            total, offset = total + (data[offset + 1] if offset + 1 < end else 0) + 9, offset + 3
    return total


def list_filters(dataset: Any) -> list[tuple[int, Any]]:
    """Return (code, parameters) of each filter, in the order of the writer."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(number)[::2] for number in range(properties.get_nfilters())]
