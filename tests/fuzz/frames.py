"""TFRecord frames and TensorFlow Examples, written without TensorFlow."""

import struct
from collections.abc import Mapping, Sequence

import google_crc32c

__all__ = ["example", "join_records", "split_records"]


def join_records(records: Sequence[bytes], lengths: Mapping[int, int] | None = None) -> bytes:
    """Return a TFRecord file. `lengths` replaces the lengths of some records; all checksums are correct."""
    frames = []
    for number, record in enumerate(records):
        length = struct.pack("<Q", (lengths or {}).get(number, len(record)))
        frames.append(length + _masked_crc(length) + record + _masked_crc(record))
    return b"".join(frames)


def split_records(data: bytes) -> list[bytes]:
    """Return the records of a file, or as many as possible if it is damaged."""
    records, offset = [], 0
    while offset + 16 <= len(data):
        (nbytes,) = struct.unpack_from("<Q", data, offset)
        if offset + 16 + nbytes > len(data):
            break
        records.append(data[offset + 12 : offset + 12 + nbytes])
        offset += nbytes + 16
    return records


def example(numbers: Sequence[float], label: int, content: bytes) -> bytes:
    """Return a serialized Example with the features x (floats), label (an integer) and content (bytes)."""
    floats = struct.pack(f"<{len(numbers)}f", *numbers)
    features = {
        b"x": _field(2, _field(1, floats)),
        b"label": _field(3, _field(1, bytes([label]))),
        b"content": _field(1, _field(1, content)),
    }
    return _field(1, b"".join(_field(1, _field(1, name) + _field(2, value)) for name, value in features.items()))


def _field(number: int, content: bytes) -> bytes:
    """Return one protobuf field with fewer than 128 * 128 bytes."""
    low, high = len(content) & 0x7F, len(content) >> 7
    return bytes([number << 3 | 2, *([low | 0x80, high] if high else [low])]) + content


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<L", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
