"""Numbers of the fields that a trace uses, as perfetto_trace.proto names them; once given, they never change."""

__all__ = ["DebugAnnotation", "InternedData", "InternedName", "ProcessDescriptor", "TracePacket", "TrackDescriptor"]
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
