"""The timeline as a Perfetto trace, with tracks for steps, threads and streams.

This module encodes the protobuf messages itself. Perfetto's Python package needs protobuf, and the doctor runs in
environments where TensorFlow and other packages pin conflicting versions of protobuf. The tests check the encoding with
Perfetto's message classes.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.report import perfetto_wire as proto
from forebay.doctor.report.device_events import all_events
from forebay.doctor.report.perfetto_wire import encode_integer, encode_message, encode_text
from forebay.doctor.report.tracks import tracks_of

__all__ = ["packets", "save_trace"]

_SEQUENCE = 1  # sequence id of all packets, because ids of interned names are valid only within a sequence
_NAMES_CLEARED = 1  # sequence flag of Perfetto: forget all names
_NEEDS_NAMES = 2  # sequence flag of Perfetto: this packet uses names
_BEGIN, _END, _INSTANT = 1, 2, 3  # event types of Perfetto; an instant has no duration
_EXPLICIT = 3  # child ordering of Perfetto: the viewer orders tracks by `sibling_order_rank`
_PROCESS, _STEPS = 1, 2  # track ids; the ids of threads and streams begin at 3


def save_trace(view: CaptureView, path: str | Path) -> None:
    """Write the trace to a file."""
    with Path(path).open("wb") as file:
        file.writelines(encode_message(proto.TRACE_PACKET, packet) for packet in packets(view))


def packets(view: CaptureView) -> Iterator[bytes]:
    """Yield the encoded packets of the trace. Their times are nanoseconds since the first event."""
    return _Trace(view).packets()


class _Trace:
    """Encodes a trace.

    Names are interned: the first packet that uses a name also defines an id for it. Later packets only use the id.
    """

    def __init__(self, view: CaptureView) -> None:
        self._view = view
        self._events = all_events(view.capture)
        self._zero = min((event.start for event in self._events), default=0)  # nanoseconds; start of the first event
        self._name_ids: dict[tuple[int, str], int] = {}  # field of InternedData and name -> id
        self._annotations: dict[tuple[str, int | str], bytes] = {}  # name and value -> encoded annotation
        self._new_names: list[bytes] = []  # encoded names that the next packet defines

    def packets(self) -> Iterator[bytes]:
        flags = encode_integer(proto.TracePacket.sequence_flags, _NAMES_CLEARED)
        yield _encode_packet(flags, _encode_process_track(self._view.capture.script))
        yield from self._encode_steps()
        track_id = _STEPS
        for position, track in enumerate(tracks_of(self._view, self._events), 1):
            for depth, row in enumerate(track.rows):
                track_id += 1
                name = f"{track.name}, nested" if depth else track.name
                yield _encode_packet(_encode_track(track_id, name, position))
                for event in row:
                    yield from self._encode_event(track_id, event)

    def _encode_steps(self) -> Iterator[bytes]:
        if self._view.steps is None:
            return
        yield _encode_packet(_encode_track(_STEPS, "profiled steps", 0))
        for step, (start, end) in enumerate(pairwise(self._view.steps.edges), 1):
            name, step_number = self._encode_name("step", "step"), self._annotate("number", step)
            yield self._track_event_packet(_BEGIN, start, _STEPS, name, step_number)
            yield self._track_event_packet(_END, end, _STEPS)

    def _encode_event(self, track_id: int, event: LedgerEvent) -> Iterator[bytes]:
        name, details = self._encode_name(event.kind, event.api), self._encode_details(event)
        if event.end <= event.start:
            yield self._track_event_packet(_INSTANT, event.start, track_id, name, *details)
            return
        yield self._track_event_packet(_BEGIN, event.start, track_id, name, *details)
        yield self._track_event_packet(_END, event.end, track_id)

    def _track_event_packet(self, kind: int, time: int, track_id: int, *fields: bytes) -> bytes:
        """Return a packet with one track event, and with the definitions of new names."""
        names, self._new_names = self._new_names, []
        return _encode_packet(
            encode_integer(proto.TracePacket.timestamp, max(0, time - self._zero)),
            encode_integer(proto.TracePacket.sequence_flags, _NEEDS_NAMES),
            encode_message(proto.TracePacket.interned_data, *names) if names else b"",
            encode_message(
                proto.TracePacket.track_event,
                encode_integer(proto.TrackEvent.type, kind),
                encode_integer(proto.TrackEvent.track_uuid, track_id),
                *fields,
            ),
        )

    def _encode_name(self, category: str, name: str) -> bytes:
        """Encode the category and the name of an event, as interned ids."""
        category_id = self._intern(proto.InternedData.event_categories, category)
        name_id = self._intern(proto.InternedData.event_names, name)
        encoded_category = encode_integer(proto.TrackEvent.category_iids, category_id)
        return encoded_category + encode_integer(proto.TrackEvent.name_iid, name_id)

    def _encode_details(self, event: LedgerEvent) -> list[bytes]:
        """Return the source line, the bytes and the details of an event as annotations."""
        line = self._view.line(event.line)
        values: dict[str, int | str] = {"line": str(line), "source": line.text} if line else {}
        values |= {"bytes": event.nbytes} if event.nbytes else {}
        values |= {name: str(value) for name, value in (event.detail or {}).items()}
        return [self._annotate(name, value) for name, value in values.items() if value != ""]

    def _annotate(self, name: str, value: int | str) -> bytes:
        """Return an encoded annotation, from a cache, because most annotations repeat."""
        annotation = self._annotations.get((name, value))
        if annotation is None:
            annotation = self._annotations[name, value] = self._encode_annotation(name, value)
        return annotation

    def _encode_annotation(self, name: str, value: int | str) -> bytes:
        name_id = self._intern(proto.InternedData.debug_annotation_names, name)
        if isinstance(value, int):
            encoded_value = encode_integer(proto.DebugAnnotation.int_value, value)
        else:
            text_id = self._intern(proto.InternedData.debug_annotation_string_values, value)
            encoded_value = encode_integer(proto.DebugAnnotation.string_value_iid, text_id)
        encoded_name = encode_integer(proto.DebugAnnotation.name_iid, name_id)
        return encode_message(proto.TrackEvent.debug_annotations, encoded_name, encoded_value)

    def _intern(self, field: int, name: str) -> int:
        """Return the id of a name. The next packet defines a new id."""
        name_id = self._name_ids.get((field, name))
        if name_id is None:
            name_id = self._name_ids[field, name] = len(self._name_ids) + 1
            definition = encode_integer(proto.InternedName.iid, name_id), encode_text(proto.InternedName.name, name)
            self._new_names.append(encode_message(field, *definition))
        return name_id


def _encode_process_track(script: str) -> bytes:
    """Encode the descriptor of the process track, the parent of all other tracks."""
    process = encode_integer(proto.ProcessDescriptor.pid, 1), encode_text(proto.ProcessDescriptor.process_name, script)
    return encode_message(
        proto.TracePacket.track_descriptor,
        encode_integer(proto.TrackDescriptor.uuid, _PROCESS),
        encode_message(proto.TrackDescriptor.process, *process),
        encode_integer(proto.TrackDescriptor.child_ordering, _EXPLICIT),
    )


def _encode_track(track_id: int, name: str, position: int) -> bytes:
    """Encode the descriptor of a track. The viewer orders tracks by `position`."""
    return encode_message(
        proto.TracePacket.track_descriptor,
        encode_integer(proto.TrackDescriptor.uuid, track_id),
        encode_integer(proto.TrackDescriptor.parent_uuid, _PROCESS),
        encode_text(proto.TrackDescriptor.name, name),
        encode_integer(proto.TrackDescriptor.sibling_order_rank, position),
    )


def _encode_packet(*fields: bytes) -> bytes:
    """Encode a packet from its encoded fields."""
    return encode_integer(proto.TracePacket.trusted_packet_sequence_id, _SEQUENCE) + b"".join(fields)
