"""The capture of one profiled run, and its file, which any machine can read."""

import gzip
import json
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from forebay.core.json_checks import parse_json, read_bounded
from forebay.doctor.model.capture_checks import check_capture
from forebay.doctor.model.device_records import DeviceRecords
from forebay.doctor.model.events import HostSample, LedgerEvent, Line
from forebay.doctor.model.step_history import StepHistory
from forebay.errors import CaptureError

__all__ = ["CAPTURE_VERSION", "STILL_RUNNING", "Capture", "Window"]

CAPTURE_VERSION = 1  # of the file format
_HINT = "Pass a file that `forebay doctor --capture` wrote."
STILL_RUNNING = "still running"  # `Capture.ended` of a capture that was made before the script ended


@dataclass(frozen=True, slots=True)
class Window:
    """The times of profiled, recorded and unprofiled steps.

    `start`, `end` and `traced` are nanoseconds on the clock of the events. Without a loop, the window is the whole run.
    """

    start: int = 0  # start of the first profiled step
    end: int = 0  # end of the last profiled step
    anchor: tuple[str, str, int] | None = None  # `LedgerEvent.site` of the events that end the steps; None: no loop
    untraced: tuple[float, ...] = ()  # seconds of each unprofiled step
    traced: tuple[int, ...] = ()  # start of the first recorded step, then the end of each recorded step


@dataclass(frozen=True, slots=True)
class Capture:
    """Everything that one profiled run recorded.

    A capture contains sizes, dtypes, times, source lines and checksums of data samples, but no training data. The
    functions in `model.redaction` remove arguments, error texts and source. The field names are the keys of the file.
    """

    script: str
    arguments: tuple[str, ...]
    ended: str  # how the script ended: "done", "exit 3", "ValueError: ...", "interrupted", "terminated", STILL_RUNNING
    seconds: float  # duration of the run
    machine: dict[str, Any]  # facts about the host
    versions: dict[str, str]  # package name -> version
    window: Window
    lines: tuple[Line, ...]  # lines of user code; events refer to them by index
    events: tuple[LedgerEvent, ...] = field(repr=False)
    notes: tuple[str, ...] = ()  # sentences about data that the doctor could not record
    facts: dict[str, Any] = field(default_factory=dict)  # of the process: frameworks, settings, memory, GPUs, script
    rank: int | None = None  # None if the run was not distributed
    device: DeviceRecords | None = None  # None if the device was not recorded
    samples: tuple[HostSample, ...] = field(default=(), repr=False)  # captures of Forebay 0.1 have none
    history: StepHistory | None = field(default=None, repr=False)  # None if too few steps were recorded for it
    started: int | None = None  # start of the run (ns, on the clock of the events); None in captures of Forebay 0.1

    def save(self, path: str | Path) -> None:
        """Write the capture as compressed JSON."""
        document = {"capture_version": CAPTURE_VERSION, **asdict(replace(self, device=None, history=None))}
        document["events"] = [list(event) for event in self.events]
        document["lines"] = [list(line) for line in self.lines]
        document["samples"] = [list(sample) for sample in self.samples]
        document["device"] = self.device.to_json() if self.device else None
        document["history"] = self.history.to_json() if self.history else None
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def load(cls, path: str | Path) -> "Capture":
        """Read a file that `save` wrote."""
        try:
            document = parse_json(read_bounded(path))
            version = document["capture_version"]
            if version == CAPTURE_VERSION:
                check_capture(document)
                return cls._from_json(document)
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {error.strerror or error}. {_HINT}") from error
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise CaptureError(f"{path} is not a capture: {error}. {_HINT}") from error
        raise CaptureError(
            f"{path} is a capture of version {str(version)[:40]}, but this Forebay reads version {CAPTURE_VERSION}. "
            "Read it with the version of Forebay that wrote it."
        )

    @classmethod
    def _from_json(cls, document: dict[str, Any]) -> "Capture":
        window = document.pop("window")
        anchor = tuple(window["anchor"]) if window["anchor"] else None
        fields = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        fields |= {
            "arguments": tuple(fields["arguments"]),
            "window": Window(
                window["start"], window["end"], anchor, tuple(window["untraced"]), tuple(window["traced"])
            ),
            "device": DeviceRecords.from_json(fields["device"]) if fields["device"] else None,
            "lines": tuple(Line(*line) for line in fields["lines"]),
            "events": tuple(LedgerEvent(*event) for event in fields["events"]),
            "notes": tuple(fields["notes"]),
            "samples": tuple(HostSample(*sample) for sample in fields.get("samples", ())),
            "history": StepHistory.from_json(fields["history"]) if fields.get("history") else None,
        }
        return cls(**fields)
