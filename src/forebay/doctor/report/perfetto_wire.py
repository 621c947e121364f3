"""Field numbers of perfetto_trace.proto, one class per message, and protobuf encoding."""

from functools import cache

__all__ = [
    "TRACE_PACKET",
    "DebugAnnotation",
    "InternedData",
    "InternedName",
    "ProcessDescriptor",
    "TracePacket",
    "TrackDescriptor",
    "TrackEvent",
    "encode_integer",
    "encode_message",
    "encode_text",
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
    """The common fields of EventCategory, EventName, DebugAnnotationName and InternedString."""

    iid = 1
    name = 2


_VARINT, _LENGTH_DELIMITED = 0, 2  # wire types
_64_BITS = (1 << 64) - 1  # mask: protobuf encodes negative numbers as two's complement with 64 bits


def encode_integer(field: int, value: int) -> bytes:
    """Encode a field that contains an integer."""
    return _encode_tag(field, _VARINT) + _encode_varint(value & _64_BITS)


def encode_text(field: int, value: str) -> bytes:
    """Encode a field that contains a text."""
    return encode_message(field, value.encode(errors="replace"))


def encode_message(field: int, *parts: bytes) -> bytes:
    """Encode a field that contains a message. `parts` are the encoded fields of the message."""
    body = b"".join(parts)
    return _encode_tag(field, _LENGTH_DELIMITED) + _encode_varint(len(body)) + body


@cache
def _encode_tag(field: int, wire_type: int) -> bytes:
    return _encode_varint(field << 3 | wire_type)


def _encode_varint(value: int) -> bytes:
    """Encode seven bits per byte, lowest first. The top bit means that more bytes follow."""
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]  # a table is fast, and most numbers of a trace fit in one byte
