"""Limits on the size of decompressed data.

A few kilobytes can decompress to gigabytes. Some codecs take a limit (`decompress_limited`). For other codecs,
`declared_nbytes` computes from the compressed bytes how much memory the codec will use.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

__all__ = ["Decompressor", "NewDecompressor", "declared_nbytes", "decompress_limited", "find_decompressor"]

_MAX_DICTIONARY_NBYTES = 512 * 2**20  # bytes of memory for the dictionary of lzma; its highest preset needs 64 MiB
_GZIP = 16 + zlib.MAX_WBITS  # window bits for data with a gzip header
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50  # the last 4 bits are arbitrary
_ZSTD_MAX_BLOCK_NBYTES = 128 * 1024  # bytes that one block can decompress to (RFC 8878)
_ZSTD_RLE_BLOCK, _ZSTD_COMPRESSED_BLOCK = 1, 2
_BLOSC_HEADER_NBYTES = 16
# Bytes that a decompressor gets at first, for each stream after the first one. This piece is small, because the
# decompressor copies all bytes of a piece that follow its stream.
_PIECE_NBYTES = 4096


class Decompressor(Protocol):
    """The interface that `zlib.decompressobj`, `bz2.BZ2Decompressor` and `lzma.LZMADecompressor` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Any, max_length: int, /) -> bytes: ...


NewDecompressor: TypeAlias = Callable[[], Decompressor]


def find_decompressor(codec: str, config: Mapping[str, Any]) -> NewDecompressor | None:
    """Return a function that makes a decompressor with a limit for a codec of numcodecs.

    Return None for a codec without such a decompressor: only gzip, zlib, bz2 and lzma have one. `config` has the
    parameters of the codec.
    """
    if codec == "lzma":
        return lambda: _new_lzma(config)
    makers: dict[str, NewDecompressor] = {
        "gzip": lambda: zlib.decompressobj(_GZIP),
        "zlib": zlib.decompressobj,
        "bz2": bz2.BZ2Decompressor,
    }
    return makers.get(codec)


def decompress_limited(new: NewDecompressor, data: Any, max_nbytes: int) -> bytes:
    """Decompress one or more streams that follow each other, and ignore other bytes after them.

    Raise ValueError if the result is longer than `max_nbytes`, or if a stream is incomplete.
    """
    view, parts, left = _bytes_of(data), list[bytes](), max_nbytes
    while not parts or len(view):
        decompressor = new()
        try:
            # Most data is one stream, which is fastest as one piece.
            part, view = _decompress_stream(decompressor, view, left, _PIECE_NBYTES if parts else len(view))
        except Exception:  # each library has its own errors
            if parts:
                break
            raise
        if len(part) > left:
            raise ValueError(f"it decompresses to more than {max_nbytes} bytes")
        if not decompressor.eof:
            raise ValueError("its data ends early")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def declared_nbytes(codec: str, data: Any) -> int:
    """Return the decompressed size that the header of compressed data declares.

    The codec allocates this number of bytes for its result. For a Zstandard frame that does not state its size, the
    result is an upper bound. Return 0 for codecs other than blosc, lz4 and zstd.
    """
    view = memoryview(data).cast("B")
    if codec == "blosc":
        return _read_int(view, 4, 4) if len(view) >= _BLOSC_HEADER_NBYTES else 0
    if codec == "lz4":
        return _read_int(view, 0, 4)
    return _zstd_nbytes(view) if codec == "zstd" else 0


def _bytes_of(data: Any) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _decompress_stream(
    decompressor: Decompressor, data: memoryview, max_nbytes: int, piece_nbytes: int
) -> tuple[bytes, memoryview]:
    """Decompress one stream. Return the result, and the data after the stream.

    Stop one byte after `max_nbytes`, or at the end of the data. Double `piece_nbytes` after each piece.
    """
    parts, nbytes, offset = list[bytes](), 0, 0
    while not decompressor.eof and nbytes <= max_nbytes and offset < len(data):
        piece = data[offset : offset + piece_nbytes]
        parts.append(decompressor.decompress(piece, max_nbytes + 1 - nbytes))
        nbytes += len(parts[-1])
        offset += len(piece)
        piece_nbytes *= 2  # keeps the pieces few, and limits the following bytes that a decompressor copies
    offset -= len(decompressor.unused_data)
    while offset < len(data) and not data[offset]:  # some writers pad the data with zeros
        block = bytes(data[offset : offset + _PIECE_NBYTES])
        offset += len(block) - len(block.lstrip(b"\0"))
    return b"".join(parts), data[offset:]


def _new_lzma(config: Mapping[str, Any]) -> lzma.LZMADecompressor:
    stream_format, filters = config.get("format", lzma.FORMAT_XZ), config.get("filters")
    if stream_format != lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(stream_format, _MAX_DICTIONARY_NBYTES, filters)
    # For raw data, the parameters of the codec state the size of the dictionary, which lzma allocates.
    if any(item.get("dict_size", 0) > _MAX_DICTIONARY_NBYTES for item in filters or ()):
        raise ValueError(f"its dictionary is larger than {_MAX_DICTIONARY_NBYTES} bytes")
    return lzma.LZMADecompressor(stream_format, None, filters)


def _zstd_nbytes(data: memoryview) -> int:
    """Return the decompressed size of all Zstandard frames (RFC 8878), or an upper bound."""
    total, offset = 0, 0
    while offset < len(data):
        magic = _read_int(data, offset, 4)
        if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            offset += 8 + _read_int(data, offset + 4, 4)
        elif magic == _ZSTD_MAGIC:
            nbytes, offset = _read_zstd_frame(data, offset + 4)
            total += nbytes
        else:
            raise ValueError("it is not Zstandard data")
    return total


def _read_zstd_frame(data: memoryview, offset: int) -> tuple[int, int]:
    """Return the decompressed size of a frame, and the offset of its end.

    If the frame does not state its size, return an upper bound. `offset` is the first byte after the magic number.
    """
    flags = _read_int(data, offset, 1)
    is_single_segment = flags >> 5 & 1
    offset += 1 + (1 - is_single_segment) + (0, 1, 2, 4)[flags & 3]  # window size and dictionary ID
    size_length = (is_single_segment, 2, 4, 8)[flags >> 6]
    declared = _read_int(data, offset, size_length) + (256 if size_length == 2 else 0)
    block_nbytes, offset = _read_zstd_blocks(data, offset + size_length)
    offset += 4 * (flags >> 2 & 1)  # checksum
    return declared if size_length else block_nbytes, offset


def _read_zstd_blocks(data: memoryview, offset: int) -> tuple[int, int]:
    """Return the largest possible decompressed size of blocks, and the offset of their end.

    The blocks are those of one frame, from byte `offset` on.
    """
    total, is_last = 0, 0
    while not is_last:
        header = _read_int(data, offset, 3)
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        total += _ZSTD_MAX_BLOCK_NBYTES if kind == _ZSTD_COMPRESSED_BLOCK else size
        offset += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    return total, offset


def _read_int(data: memoryview, offset: int, length: int) -> int:
    field = data[offset : offset + length]
    if len(field) < length:
        raise ValueError("its data ends early")
    return int.from_bytes(field, "little")
