"""The timeline as a trace for ui.perfetto.dev: a track for each thread and stream, and one for the steps.

The few messages that a trace needs are written by hand. Perfetto's own package would do it too, but it needs protobuf,
whose version TensorFlow and others fight about in the very environments where the doctor runs. Its message classes
read every trace back in the tests.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from forebay.doctor.analyse.case import Case
from forebay.doctor.model.events import Event
from forebay.doctor.report import perfetto_wire as proto
from forebay.doctor.report.device_events import all_events
from forebay.doctor.report.perfetto_wire import message, number, text
from forebay.doctor.report.tracks import lanes_of

__all__ = ["packets", "save_trace"]

_SEQUENCE = 1  # who writes; interned names are known within one sequence
_NAMES_START_ANEW, _NAMES_ARE_KNOWN = 1, 2  # sequence flags
_BEGIN, _END, _INSTANT = 1, 2, 3  # types of an event
_EXPLICIT = 3  # tracks in the order of their ranks
_PROCESS, _STEPS = 1, 2  # tracks; those of lanes follow


def save_trace(case: Case, path: str | Path) -> None:
    """Write it down."""
    with Path(path).open("wb") as file:
        file.writelines(message(proto.TRACE_PACKET, packet) for packet in packets(case))


def packets(case: Case) -> Iterator[bytes]:
    """Every packet of the trace; times are nanoseconds since the first event."""
    return _Trace(case).packets()


class _Trace:
    """Names are written out when they are first used, and are numbers from then on."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._events = all_events(case.capture)
        self._zero = min((event.start for event in self._events), default=0)
        self._numbers: dict[tuple[int, str], int] = {}
        self._said: dict[tuple[str, int | str], bytes] = {}
        self._fresh: list[bytes] = []  # names that nobody was told yet

    def packets(self) -> Iterator[bytes]:
        flags = number(proto.TracePacket.sequence_flags, _NAMES_START_ANEW)
        yield _packet(flags, _process_track(self._case.capture.script))
        yield from self._steps()
        track = _STEPS
        for place, lane in enumerate(lanes_of(self._case, self._events), 1):
            for depth, row in enumerate(lane.rows):
                track += 1
                yield _packet(_track(track, f"{lane.name}, inside" if depth else lane.name, place))
                for event in row:
                    yield from self._event(track, event)

    def _steps(self) -> Iterator[bytes]:
        if self._case.steps is None:
            return
        yield _packet(_track(_STEPS, "steady steps", 0))
        for place, (start, end) in enumerate(pairwise(self._case.steps.edges), 1):
            yield self._mark(_BEGIN, start, _STEPS, self._named("step", "step"), self._say("number", place))
            yield self._mark(_END, end, _STEPS)

    def _event(self, track: int, event: Event) -> Iterator[bytes]:
        named, details = self._named(event.kind, event.api), self._details(event)
        if event.end <= event.start:
            yield self._mark(_INSTANT, event.start, track, named, *details)
            return
        yield self._mark(_BEGIN, event.start, track, named, *details)
        yield self._mark(_END, event.end, track)

    def _mark(self, kind: int, time: int, track: int, *fields: bytes) -> bytes:
        """A packet that begins or ends a slice of a track; names that are new go out with it."""
        fresh, self._fresh = self._fresh, []
        return _packet(
            number(proto.TracePacket.timestamp, max(0, time - self._zero)),
            number(proto.TracePacket.sequence_flags, _NAMES_ARE_KNOWN),
            message(proto.TracePacket.interned_data, *fresh) if fresh else b"",
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

    def _details(self, event: Event) -> list[bytes]:
        line = self._case.line(event.line)
        said: dict[str, int | str] = {"line": str(line), "source": line.text} if line else {}
        said |= {"bytes": event.nbytes} if event.nbytes else {}
        said |= {name: str(value) for name, value in (event.detail or {}).items()}
        return [self._say(name, value) for name, value in said.items() if value != ""]

    def _say(self, name: str, value: int | str) -> bytes:
        """Something said of a slice; said again and again, so made once."""
        found = self._said.get((name, value))
        if found is None:
            found = self._said[name, value] = self._annotation(name, value)
        return found

    def _annotation(self, name: str, value: int | str) -> bytes:
        known = self._number(proto.InternedData.debug_annotation_names, name)
        if isinstance(value, int):
            said = number(proto.DebugAnnotation.int_value, value)
        else:
            text_known = self._number(proto.InternedData.debug_annotation_string_values, value)
            said = number(proto.DebugAnnotation.string_value_iid, text_known)
        return message(proto.TrackEvent.debug_annotations, number(proto.DebugAnnotation.name_iid, known), said)

    def _number(self, field: int, name: str) -> int:
        found = self._numbers.get((field, name))
        if found is None:
            found = self._numbers[field, name] = len(self._numbers) + 1
            naming = number(proto.InternedName.iid, found), text(proto.InternedName.name, name)
            self._fresh.append(message(field, *naming))
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
