"""The protobuf wire format, as much of it as a trace needs: numbers, texts, messages within messages."""

from functools import cache

__all__ = ["message", "number", "text"]

_VARINT, _LENGTH = 0, 2  # wire types
_64_BITS = (1 << 64) - 1  # of a number below zero, the two's complement is written


def number(field: int, value: int) -> bytes:
    """A field that holds a whole number."""
    return _tag(field, _VARINT) + _varint(value & _64_BITS)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="replace"))


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds another message, made of its fields."""
    body = b"".join(parts)
    return _tag(field, _LENGTH) + _varint(len(body)) + body


@cache
def _tag(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]  # nearly all of them, in a trace of a million events
