"""A capture: everything that was seen of one run, as plain values; written to a file and read on any machine."""

import gzip
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.doctor.model.device_records import Recorded
from forebay.doctor.model.events import Event, Line
from forebay.errors import CaptureError

__all__ = ["CAPTURE_VERSION", "Capture", "Window"]

CAPTURE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Window:
    """When everything was watched, and how long steps took afterwards, when nothing but their end was."""

    start: int = 0  # nanoseconds, on the clock of the events
    end: int = 0
    anchor: tuple[str, str, int] | None = None  # kind, api and line of what ends a step
    untraced: tuple[float, ...] = ()  # seconds of steps after the window
    traced: tuple[int, ...] = ()  # when steps ended that were recorded on the device


@dataclass(frozen=True, slots=True)
class Capture:
    """One run. It holds no data of the user's: sizes, types, times, lines and checksums of samples."""

    script: str
    arguments: tuple[str, ...]
    ended: str  # how the script ended: "done", "exit 3", "ValueError: ...", "interrupted", "terminated"
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, str]
    window: Window
    lines: tuple[Line, ...]
    events: tuple[Event, ...] = field(repr=False)
    notes: tuple[str, ...] = ()  # what could not be seen
    facts: dict[str, Any] = field(default_factory=dict)  # of the process: threads, devices, memory, settings
    rank: int | None = None
    device: Recorded | None = None  # what the device itself did, in the traced steps

    def without_text(self) -> "Capture":
        """The same without a word of the source."""
        return replace(self, lines=tuple(line._replace(text="") for line in self.lines))

    def save(self, path: str | Path) -> None:
        """Write it down, compressed."""
        document = {"capture_version": CAPTURE_VERSION, **asdict(replace(self, device=None))}
        document["events"] = [list(event) for event in self.events]
        document["lines"] = [list(line) for line in self.lines]
        document["device"] = self.device.to_json() if self.device else None
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def load(cls, path: str | Path) -> "Capture":
        """Read one that `save` wrote."""
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                document = json.load(file)
            version = document["capture_version"]
            if version == CAPTURE_VERSION:
                return cls._of(document)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise CaptureError(f"{path} is not a capture of `forebay doctor --capture`: {error}") from error
        raise CaptureError(f"{path} is a capture of version {version}; this Forebay reads {CAPTURE_VERSION}.")

    @classmethod
    def _of(cls, document: dict[str, Any]) -> "Capture":
        window = document.pop("window")
        anchor = tuple(window["anchor"]) if window["anchor"] else None
        fields = {name: value for name, value in document.items() if name != "capture_version"}
        fields |= {
            "arguments": tuple(fields["arguments"]),
            "window": Window(
                window["start"], window["end"], anchor, tuple(window["untraced"]), tuple(window["traced"])
            ),
            "device": Recorded.from_json(fields["device"]) if fields["device"] else None,
            "lines": tuple(Line(*line) for line in fields["lines"]),
            "events": tuple(Event(*event) for event in fields["events"]),
            "notes": tuple(fields["notes"]),
        }
        return cls(**fields)
