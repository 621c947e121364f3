"""Small compressed data that inflates to many equal bytes, made without compressing them all."""

import struct
import zlib

__all__ = ["gzip_bomb", "zip_bomb", "zlib_bomb"]

_BLOCK_NBYTES = 1 << 20


def gzip_bomb(prefix: bytes, count: int, byte: bytes = b"\0") -> bytes:
    """Return a gzip file of `prefix` and `count` MiB of one byte."""
    crc, nbytes = _checksum(zlib.crc32, 0, prefix, count, byte)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + _deflate(prefix, count, byte) + struct.pack("<LL", crc, nbytes)


def zlib_bomb(count: int) -> bytes:
    """Return a zlib stream of `count` MiB of zeros."""
    adler, _ = _checksum(zlib.adler32, 1, b"", count, b"\0")
    return b"\x78\x9c" + _deflate(b"", count, b"\0") + struct.pack(">L", adler)


def zip_bomb(name: bytes, prefix: bytes, count: int) -> bytes:
    """Return an archive with one member: `prefix` and `count` MiB of zeros."""
    data = _deflate(prefix, count, b"\0")
    crc, nbytes = _checksum(zlib.crc32, 0, prefix, count, b"\0")
    sizes = (20, 0, 8, 0, 0, crc, len(data), nbytes, len(name), 0)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", *sizes) + name
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, *sizes, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(entry), len(local) + len(data), 0)
    return local + data + entry + end


def _deflate(prefix: bytes, count: int, byte: bytes) -> bytes:
    """Return a raw deflate stream that repeats one compressed block."""
    return _compress(prefix) + _compress(byte * _BLOCK_NBYTES) * count + b"\x03\x00"


def _compress(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)


def _checksum(function: object, start: int, prefix: bytes, count: int, byte: bytes) -> tuple[int, int]:
    assert callable(function)
    value, block = function(prefix, start), byte * _BLOCK_NBYTES
    for _ in range(count):
        value = function(block, value)
    return value, len(prefix) + count * _BLOCK_NBYTES
