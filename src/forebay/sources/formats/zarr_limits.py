"""Limits on the memory that the codecs of a Zarr array use.

zarr calls a codec without a limit, so a chunk of a few KiB could decompress to gigabytes. `limit_codecs` replaces each
decompressor of an array by one that raises an error at a limit. The limit follows from the size of a chunk.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numcodecs
import numpy as np
import zarr
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_ndarray
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec

from forebay.errors import SourceError
from forebay.sources.formats.inflate_limit import declared_nbytes, decompress_limited, find_decompressor
from forebay.sources.formats.zarr_codecs import COMPRESSORS, describe_codecs, plain_name

__all__ = ["limit_codecs"]

_DTYPE_KEYS = ("dtype", "astype", "encode_dtype", "decode_dtype")  # parameters of filters
_MAX_NUMBER_NBYTES = 32  # bytes of NumPy's longest number
_SLACK_NBYTES = 64 * 1024  # bytes for headers and checksums
_INDEX_ENTRY_NBYTES = 16  # bytes of the offset and the length of a chunk in the index of a shard


def limit_codecs(array: Any, name: str) -> Any:
    """Return the same array, whose codecs use at most the memory of a few chunks.

    `name` names the array and its store, for error messages.
    """
    metadata, item_nbytes = array.metadata, array.dtype.itemsize
    widest = max([item_nbytes, *(_widest_dtype(config) for _, config in describe_codecs(metadata))])
    if widest > max(item_nbytes, _MAX_NUMBER_NBYTES):
        raise SourceError(f"{name} is damaged: a filter makes values of {widest} bytes. Write or download it again.")
    sizes = _ItemSizes(item_nbytes, widest)
    if metadata.zarr_format == 2:
        limit = sizes.limit(metadata.chunks)
        filters = metadata.filters and [_LimitedNumcodec(codec, limit) for codec in metadata.filters]
        compressor = metadata.compressor and _LimitedNumcodec(metadata.compressor, limit)
        metadata = replace(metadata, filters=filters, compressor=compressor)
    else:
        metadata = replace(metadata, codecs=_limit_all(metadata.codecs, metadata.chunk_grid.chunk_shape, sizes))
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path))


@dataclass(frozen=True, slots=True)
class _Limit:
    """Sizes of one chunk, in bytes."""

    decoded_nbytes: int  # of the decoded values
    max_nbytes: int  # limit for the data of the chunk before, between and after the codecs


class _LimitedDecoder:
    """Decodes chunks with one codec of numcodecs. Input and output have a limit."""

    def __init__(self, codec: Codec, config: Mapping[str, Any], limit: _Limit) -> None:
        self._name, self._decode, self._limit = codec.codec_id, codec.decode, limit
        self._new_decompressor = find_decompressor(self._name, config)

    def decode(self, data: Any) -> Any:
        """Decode a chunk. Raise ValueError at the limit."""
        max_nbytes = self._limit.max_nbytes
        if data.nbytes > max_nbytes:
            raise ValueError(f"{data.nbytes} bytes are stored, and the limit for this chunk is {max_nbytes}")
        if self._new_decompressor is not None:
            return decompress_limited(self._new_decompressor, data, max_nbytes)
        nbytes = declared_nbytes(self._name, data) if self._name in COMPRESSORS else 0
        if nbytes <= max_nbytes:
            return self._decode(data)
        if self._name != "zstd":
            raise ValueError(f"it decompresses to {nbytes} bytes, and the limit for this chunk is {max_nbytes}")
        # For a Zstandard frame that does not state its size, `nbytes` is only an upper bound. So pass a buffer of the
        # expected size: the decoder raises an error if the data is longer.
        return self._decode(data, np.empty(self._limit.decoded_nbytes, np.uint8))


@dataclass(frozen=True, slots=True)
class _ItemSizes:
    """Bytes of one value of an array."""

    decoded: int  # in the array
    widest: int  # in the longest dtype during the decoding; a filter may use a longer dtype than the array

    def limit(self, chunk_shape: Sequence[int]) -> _Limit:
        count = math.prod(chunk_shape)
        # Allow 1/8 more, because a codec makes data that it cannot compress slightly longer.
        return _Limit(count * self.decoded, count * self.widest + count * self.widest // 8 + _SLACK_NBYTES)


class _LimitedNumcodec(Codec):  # type: ignore[misc]  # numcodecs has no types
    """A codec of an array in Zarr format 2, with a limit."""

    codec_id = "forebay-limited"

    def __init__(self, codec: Codec, limit: _Limit) -> None:
        self._codec, self._decoder = codec, _LimitedDecoder(codec, codec.get_config(), limit)

    def encode(self, buf: Any) -> Any:
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        is_compressor = self._codec.codec_id in COMPRESSORS
        return self._decoder.decode(ensure_contiguous_ndarray(buf) if is_compressor else ensure_ndarray(buf))


@dataclass(frozen=True)
class _LimitedCodec(BytesBytesCodec):  # type: ignore[misc]  # mypy does not check zarr
    """A compressor of an array in Zarr format 3, with a limit."""

    inner: BytesBytesCodec
    decoder: _LimitedDecoder
    is_fixed_size = False

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode, chunk_bytes, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        return int(self.inner.compute_encoded_size(input_byte_length, chunk_spec))

    def _decode(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return chunk_spec.prototype.buffer.from_bytes(self.decoder.decode(chunk_bytes.as_numpy_array()))


def _limit_all(codecs: Sequence[Any], chunk_shape: Sequence[int], sizes: _ItemSizes) -> tuple[Any, ...]:
    return tuple(_limit_one(codec, chunk_shape, sizes) for codec in codecs)


def _limit_one(codec: Any, chunk_shape: Sequence[int], sizes: _ItemSizes) -> Any:
    if isinstance(codec, ShardingCodec):
        counts = [shard // chunk for shard, chunk in zip(chunk_shape, codec.chunk_shape, strict=True)]
        index_sizes = _ItemSizes(_INDEX_ENTRY_NBYTES, _INDEX_ENTRY_NBYTES)
        return replace(
            codec,
            codecs=_limit_all(codec.codecs, codec.chunk_shape, sizes),
            index_codecs=_limit_all(codec.index_codecs, counts, index_sizes),
        )
    description = codec.to_dict()
    name, config = plain_name(description["name"]), description.get("configuration") or {}
    if name not in COMPRESSORS:
        return codec
    return _LimitedCodec(codec, _LimitedDecoder(numcodecs.get_codec({"id": name}), config, sizes.limit(chunk_shape)))


def _widest_dtype(config: Mapping[str, Any]) -> int:
    """Return the bytes of the longest dtype in a codec's parameters; 0 without any."""
    return max((np.dtype(config[key]).itemsize for key in _DTYPE_KEYS if config.get(key)), default=0)
