"""Numbers of the fields that a trace uses, as perfetto_trace.proto names them; once given, they never change."""

from functools import cache

__all__ = [
    "DebugAnnotation",
    "InternedData",
    "InternedName",
    "ProcessDescriptor",
    "TracePacket",
    "TrackDescriptor",
    "message",
    "number",
    "text",
]

__all__ += ["TrackEvent", "TRACE_PACKET"]

TRACE_PACKET = 1  # the only field of a trace


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
    """Alike in EventCategory, EventName, DebugAnnotationName and InternedString."""

    iid = 1
    name = 2


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
