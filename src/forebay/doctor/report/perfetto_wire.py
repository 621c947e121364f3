"""Protobuf field numbers of perfetto_trace.proto, and the wire format."""

from functools import cache

__all__ = [
    "DebugAnnotation",
    "InternedData",
    "InternedName",
    "ProcessDescriptor",
    "TRACE_PACKET",
    "TracePacket",
    "TrackDescriptor",
    "TrackEvent",
    "message",
    "number",
    "text",
]

TRACE_PACKET = 1  # the only field of the message Trace


class TracePacket:
    timestamp = 8
    trusted_packet_sequence_id = 10
    track_event = 11
    interned_data = 12
    sequence_flags = 13
    track_descriptor = 60


class TrackDescriptor:
    uuid = 1
    name = 2
    process = 3
    parent_uuid = 5
    child_ordering = 11
    sibling_order_rank = 12


class ProcessDescriptor:
    pid = 1
    process_name = 6


class TrackEvent:
    category_iids = 3
    debug_annotations = 4
    type = 9
    name_iid = 10
    track_uuid = 11


class DebugAnnotation:
    name_iid = 1
    int_value = 4
    string_value_iid = 17


class InternedData:
    event_categories = 1
    event_names = 2
    debug_annotation_names = 3
    debug_annotation_string_values = 29


class InternedName:
    """Fields of EventCategory, EventName, DebugAnnotationName and InternedString, which are equal."""

    iid = 1
    name = 2


_VARINT, _LENGTH = 0, 2  # wire types
_64_BITS = (1 << 64) - 1  # negative numbers are written as two's complement


def number(field: int, value: int) -> bytes:
    """Encode a field that holds an integer."""
    return _tag(field, _VARINT) + _varint(value & _64_BITS)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="replace"))


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field that holds a message, from its encoded fields."""
    body = b"".join(parts)
    return _tag(field, _LENGTH) + _varint(len(body)) + body


@cache
def _tag(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, lowest first; the top bit means that more bytes follow."""
    if value < 0x80:
        return _ONE_BYTE[value]
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]  # cached: most numbers of a trace fit in one byte
