"""A reader of Perfetto traces that resolves names and pairs the ends of slices as the viewer does."""

from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

KINDS = ("event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values")
NEEDS_NAMES = perfetto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
CLEARED = perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED


@dataclass
class Slice:
    name: str
    category: str
    track: str
    start: int
    annotations: dict
    end: int = -1


@dataclass
class Trace:
    slices: list = field(default_factory=list)
    instants: int = 0
    tracks: dict = field(default_factory=dict)
    open: dict = field(default_factory=dict)  # slices without an end yet, by track


def read_trace(path):
    packets = perfetto.Trace()
    packets.ParseFromString(Path(path).read_bytes())
    trace, names, cleared = Trace(), {}, False
    for packet in packets.packet:
        cleared = cleared or bool(packet.sequence_flags & CLEARED)
        _add_names(names, packet.interned_data)
        if packet.HasField("track_descriptor"):
            described = packet.track_descriptor
            trace.tracks[described.uuid] = described.name or described.process.process_name
        if packet.HasField("track_event"):
            assert cleared, "names are used before the sequence began"
            assert packet.sequence_flags & NEEDS_NAMES
            _add_event(trace, names, packet)
    return trace


def _add_names(names, interned):
    for kind in KINDS:
        for entry in getattr(interned, kind):
            text = entry.str.decode() if kind == KINDS[3] else entry.name
            assert names.setdefault((kind, entry.iid), text) == text, "one number stands for two names"


def _add_event(trace, names, packet):
    event = packet.track_event
    track = trace.tracks[event.track_uuid]
    if event.type == perfetto.TrackEvent.TYPE_SLICE_END:
        ended = trace.open[event.track_uuid].pop()
        ended.end = packet.timestamp
        trace.slices.append(ended)
        if not trace.open[event.track_uuid]:
            del trace.open[event.track_uuid]
        return
    annotations = {names[KINDS[2], note.name_iid]: _value(names, note) for note in event.debug_annotations}
    name, category = names[KINDS[1], event.name_iid], names[KINDS[0], event.category_iids[0]]
    if event.type == perfetto.TrackEvent.TYPE_INSTANT:
        trace.instants += 1
        return
    trace.open.setdefault(event.track_uuid, []).append(Slice(name, category, track, packet.timestamp, annotations))


def _value(names, note):
    return note.int_value if note.HasField("int_value") else names[KINDS[3], note.string_value_iid]
