"""The timeline as a Perfetto trace: a track for each thread and stream, and one for the steps.

This module encodes the few protobuf messages of a trace itself. Perfetto's Python package needs protobuf, but
TensorFlow and other packages pin conflicting versions of it in the environments where the doctor runs. The tests read
every trace with Perfetto's message classes.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.report import perfetto_wire as proto
from forebay.doctor.report.device_events import all_events
from forebay.doctor.report.perfetto_wire import message, number, text
from forebay.doctor.report.tracks import tracks_of

__all__ = ["packets", "save_trace"]

_SEQUENCE = 1  # writer id; interned names are valid within one sequence
_NAMES_CLEARED, _NEEDS_NAMES = 1, 2  # sequence flags of Perfetto
_BEGIN, _END, _INSTANT = 1, 2, 3  # event types of Perfetto
_EXPLICIT = 3  # order tracks by their rank
_PROCESS, _STEPS = 1, 2  # track ids; the tracks of threads and streams follow


def save_trace(view: CaptureView, path: str | Path) -> None:
    """Write the trace to a file."""
    with Path(path).open("wb") as file:
        file.writelines(message(proto.TRACE_PACKET, packet) for packet in packets(view))


def packets(view: CaptureView) -> Iterator[bytes]:
    """Yield the packets of the trace; times are nanoseconds since the first event."""
    return _Trace(view).packets()


class _Trace:
    """Encodes a trace. A name is written at its first use and referenced by number afterwards."""

    def __init__(self, view: CaptureView) -> None:
        self._view = view
        self._events = all_events(view.capture)
        self._zero = min((event.start for event in self._events), default=0)
        self._numbers: dict[tuple[int, str], int] = {}
        self._annotations: dict[tuple[str, int | str], bytes] = {}
        self._new_names: list[bytes] = []  # names that no packet has defined yet

    def packets(self) -> Iterator[bytes]:
        flags = number(proto.TracePacket.sequence_flags, _NAMES_CLEARED)
        yield _packet(flags, _process_track(self._view.capture.script))
        yield from self._steps()
        track = _STEPS
        for place, timeline_track in enumerate(tracks_of(self._view, self._events), 1):
            for depth, row in enumerate(timeline_track.rows):
                track += 1
                yield _packet(_track(track, f"{timeline_track.name}, nested" if depth else timeline_track.name, place))
                for event in row:
                    yield from self._event(track, event)

    def _steps(self) -> Iterator[bytes]:
        if self._view.steps is None:
            return
        yield _packet(_track(_STEPS, "steady steps", 0))
        for place, (start, end) in enumerate(pairwise(self._view.steps.edges), 1):
            yield self._mark(_BEGIN, start, _STEPS, self._named("step", "step"), self._annotate("number", place))
            yield self._mark(_END, end, _STEPS)

    def _event(self, track: int, event: LedgerEvent) -> Iterator[bytes]:
        named, details = self._named(event.kind, event.api), self._details(event)
        if event.end <= event.start:
            yield self._mark(_INSTANT, event.start, track, named, *details)
            return
        yield self._mark(_BEGIN, event.start, track, named, *details)
        yield self._mark(_END, event.end, track)

    def _mark(self, kind: int, time: int, track: int, *fields: bytes) -> bytes:
        """Return a packet that begins or ends a slice; it also defines new names."""
        names, self._new_names = self._new_names, []
        return _packet(
            number(proto.TracePacket.timestamp, max(0, time - self._zero)),
            number(proto.TracePacket.sequence_flags, _NEEDS_NAMES),
            message(proto.TracePacket.interned_data, *names) if names else b"",
            message(
                proto.TracePacket.track_event,
                number(proto.TrackEvent.type, kind),
                number(proto.TrackEvent.track_uuid, track),
                *fields,
            ),
        )

    def _named(self, category: str, name: str) -> bytes:
        in_category = number(
            proto.TrackEvent.category_iids, self._number(proto.InternedData.event_categories, category)
        )
        return in_category + number(proto.TrackEvent.name_iid, self._number(proto.InternedData.event_names, name))

    def _details(self, event: LedgerEvent) -> list[bytes]:
        line = self._view.line(event.line)
        values: dict[str, int | str] = {"line": str(line), "source": line.text} if line else {}
        values |= {"bytes": event.nbytes} if event.nbytes else {}
        values |= {name: str(value) for name, value in (event.detail or {}).items()}
        return [self._annotate(name, value) for name, value in values.items() if value != ""]

    def _annotate(self, name: str, value: int | str) -> bytes:
        """Return the annotation of a slice, cached because annotations repeat."""
        found = self._annotations.get((name, value))
        if found is None:
            found = self._annotations[name, value] = self._annotation(name, value)
        return found

    def _annotation(self, name: str, value: int | str) -> bytes:
        known = self._number(proto.InternedData.debug_annotation_names, name)
        if isinstance(value, int):
            values = number(proto.DebugAnnotation.int_value, value)
        else:
            text_known = self._number(proto.InternedData.debug_annotation_string_values, value)
            values = number(proto.DebugAnnotation.string_value_iid, text_known)
        return message(proto.TrackEvent.debug_annotations, number(proto.DebugAnnotation.name_iid, known), values)

    def _number(self, field: int, name: str) -> int:
        found = self._numbers.get((field, name))
        if found is None:
            found = self._numbers[field, name] = len(self._numbers) + 1
            naming = number(proto.InternedName.iid, found), text(proto.InternedName.name, name)
            self._new_names.append(message(field, *naming))
        return found


def _process_track(script: str) -> bytes:
    process = number(proto.ProcessDescriptor.pid, 1), text(proto.ProcessDescriptor.process_name, script)
    return message(
        proto.TracePacket.track_descriptor,
        number(proto.TrackDescriptor.uuid, _PROCESS),
        message(proto.TrackDescriptor.process, *process),
        number(proto.TrackDescriptor.child_ordering, _EXPLICIT),
    )


def _track(track: int, name: str, place: int) -> bytes:
    return message(
        proto.TracePacket.track_descriptor,
        number(proto.TrackDescriptor.uuid, track),
        number(proto.TrackDescriptor.parent_uuid, _PROCESS),
        text(proto.TrackDescriptor.name, name),
        number(proto.TrackDescriptor.sibling_order_rank, place),
    )


def _packet(*fields: bytes) -> bytes:
    return number(proto.TracePacket.trusted_packet_sequence_id, _SEQUENCE) + b"".join(fields)
