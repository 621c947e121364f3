"""Limits on the memory that filters of the HDF5 library use.

The library calls a filter without a limit, so a chunk of a few MiB could decompress to gigabytes.
"""

from collections.abc import Iterator
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
_SLACK_NBYTES = 64 * 1024  # for headers and checksums


class FilterLimits:
    """Checks the chunks of one dataset before the HDF5 library decompresses them."""

    def __init__(self, dataset: Any, max_nbytes: int) -> None:
        """`max_nbytes` is the memory that a chunk may take without a check of its content."""
        self._dataset, self._max_nbytes = dataset, max_nbytes
        self._codes = [code for code, _ in list_filters(dataset)] if dataset.chunks else []
        has_checksum = self._codes[-1:] == [_FLETCHER32]
        self._checksum_nbytes = _CHECKSUM_NBYTES if has_checksum else 0
        self._outermost = ([0, *self._codes[:-1]] if has_checksum else [0, *self._codes])[-1]
        self._may_grow = _DEFLATE in self._codes or self._outermost in _PLUGINS
        chunk_nbytes = int(np.prod(dataset.chunks or (1,), dtype=object)) * dataset.dtype.itemsize
        self._limit_nbytes = 2 * chunk_nbytes + _SLACK_NBYTES

    def validate(self, first_row: int) -> None:
        """Raise ValueError if a chunk that begins at this row decompresses to more than its size."""
        if not self._may_grow:
            return
        for start in self._chunk_starts(first_row):
            info = self._dataset.id.get_chunk_info_by_coord(start)
            if info.size and (self._outermost in _PLUGINS or info.size * _MAX_RATIO > self._max_nbytes):
                self._validate_content(start)

    def _chunk_starts(self, first_row: int) -> Iterator[tuple[int, ...]]:
        axes = zip(self._dataset.shape[1:], self._dataset.chunks[1:], strict=True)
        return product((first_row,), *(range(0, length, chunk) for length, chunk in axes))

    def _validate_content(self, start: tuple[int, ...]) -> None:
        filter_mask, data = self._dataset.id.read_direct_chunk(start)
        if filter_mask:
            return  # the writer skipped a filter, so the order of the others is not known here
        data = memoryview(data)[: len(data) - self._checksum_nbytes]
        if self._outermost == _DEFLATE:
            decompress_limited(isal_zlib.decompressobj, data, self._limit_nbytes)
            return
        codec = _PLUGINS.get(self._outermost)
        if codec is None:
            raise ValueError(f"a chunk of {len(data)} bytes could decompress to more than {self._max_nbytes} bytes")
        nbytes = declared_nbytes(codec, data)
        if nbytes > self._limit_nbytes:
            raise ValueError(f"a chunk decompresses to {nbytes} bytes, and the limit is {self._limit_nbytes}")


def list_filters(dataset: Any) -> list[tuple[int, Any]]:
    """Return the code and the parameters of each filter, in the order in which the writer applied them."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(number)[::2] for number in range(properties.get_nfilters())]
