"""Capture files that a hostile author could write: wrong types, huge values, decompression bombs, truncated data."""

import base64
import gzip
import json
import zlib
from dataclasses import asdict, replace
from functools import partial

import numpy as np
from tests.doctor.report import report_samples as samples
from tests.fuzz.bombs import gzip_bomb, zlib_bomb

from forebay.doctor.model.device_records import RECORD
from forebay.doctor.model.step_history import StackFrame, StepBlock, StepHistory

__all__ = ["FILES", "document"]


def document():
    """Return the JSON document of a valid capture with steps and device records."""
    capture = samples.streaming().view.capture
    values = asdict(replace(capture, device=None))
    values["events"], values["lines"] = (
        [list(event) for event in capture.events],
        [list(line) for line in capture.lines],
    )
    return json.loads(json.dumps({"capture_version": 1, **values, "device": capture.device.to_json()}))


def _changed(path, value):
    """Return the bytes of a capture file with one value replaced. `path` is a list of keys."""
    changed = part = document()
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value() if callable(value) else value
    return gzip.compress(json.dumps(changed).encode(), 1)


def _text(text):
    return gzip.compress(text if isinstance(text, bytes) else text.encode(), 1)


def _records(**fields):
    """Return packed device records: one kernel with these fields."""
    rows = np.zeros(1, RECORD)
    for name, value in ({"kind": 3} | fields).items():
        rows[name] = value
    return base64.b64encode(zlib.compress(rows.tobytes())).decode()


def _records_bomb():
    return base64.b64encode(zlib_bomb(600)).decode()


_EVENT = ["upload", "torch.tensor", 1, 7, 5, 9, 4, None]
_WRONG = {
    "script": [None, 5, ["a"]],
    "arguments": ["abc", None, [1, 2]],
    "ended": [None, 5],
    "seconds": ["x", -1, 1e308, True, 10**40],
    "machine": [None, "x", {"cores": [1]}],
    "versions": [None, {"numpy": 2}],
    "window": [None, "x", {}, {"start": "0"}],
    "lines": [None, [["a"]], [[1, 2, 3, 4]], [["a", "b", "c", "d"]], {}],
    "events": [5, [[1, 2]], [[*_EVENT, 1]], [["unknown", *_EVENT[1:]]], [[*_EVENT[:4], 9, 5, 4, None]], [[{}] * 8]],
    "notes": [None, [1], "note"],
    "facts": [
        None,
        [1],
        {"settings": 5},
        {"frameworks": {"torch": 1}},
        {"memory": [{}]},
        {"gauges": [1]},
        {"script": 5},
        {"script": {"files": [{"file": "a"}]}},
        {"script": {"files": [{"file": "a", "lines": [[0, "x"]]}]}},
        {"script": {"files": [{"file": 1, "lines": []}]}},
    ],
    "rank": ["../../up", -1, 1.5, 10**30],
    "device": [[1, 2, 3], {"a": 1}, "x"],
    "capture_version": [2, "1", None, {}],
}
_HISTORY = StepHistory((StackFrame(-1, 0),), (StepBlock(5, 1.0, 0.2),)).to_json()
_WRONG_PARTS = {
    "anchor": (["window", "anchor"], ["step"]),
    "untraced": (["window", "untraced"], [float("inf")]),
    "traced": (["window", "traced"], [-(10**30)]),
    "history": (["history"], [1]),
    "a frame that is its own caller": (["history"], {**_HISTORY, "frames": [[0, 0, ""]]}),
    "a frame without a name": (["history"], {**_HISTORY, "frames": [[-1, 0, None]]}),
    "a block without steps": (["history"], {**_HISTORY, "blocks": [[0, 1.0, 1.0, []]]}),
    "a block that takes 1e300 seconds": (["history"], {**_HISTORY, "blocks": [[1, 1e300, 1.0, []]]}),
    "a long step with a negative position": (["history"], {**_HISTORY, "long_steps": [[-1, 1.0, []]]}),
    "a resolution of 0 steps": (["history"], {**_HISTORY, "resolution": 0}),
    "a history without frames": (["history"], {"blocks": []}),
    "event time": (["events", 0, 5], 2**63),
    "event size": (["events", 0, 6], -1),
    "event line": (["events", 0, 2], "0"),
    "event detail": (["events", 0, 7], {"shape": "x"}),
    "event count": (["events", 0, 7], {"count": "many", "constants_nbytes": []}),
    "a record with an unknown name": (["device", "records"], _records(name=99)),
    "a record of impossible size": (["device", "records"], _records(nbytes=2**64 - 1)),
    "half a record": (["device", "records"], base64.b64encode(zlib.compress(b"x" * 9)).decode()),
    "records that are not base64": (["device", "records"], "\u2603"),
    "records that are not compressed": (["device", "records"], "AAAA"),
    "a decompression bomb in the records": (["device", "records"], _records_bomb),
    "negative drops": (["device", "dropped"], -1),
}
# Name -> function that returns the bytes of a file. The values are functions because the bombs take seconds to make.
FILES = {
    **{
        f"{key} is {str(value)[:40]}": partial(_changed, [key], value)
        for key, values in _WRONG.items()
        for value in values
    },
    **{name: partial(_changed, path, value) for name, (path, value) in _WRONG_PARTS.items()},
    "deep lists": lambda: _text("[" * 200_000),
    "deep objects": lambda: _text('{"a":' * 50_000),
    "a number of 5,000 digits": lambda: _text('{"capture_version": ' + "9" * 5000 + "}"),
    "a list": lambda: _text("[1]"),
    "a string": lambda: _text('"x"'),
    "an empty file": lambda: _text(""),
    "null": lambda: _text("null"),
    "not UTF-8": lambda: _text(b"\xff\xfe\xfa"),
    "truncated": lambda: _changed(["rank"], None)[:-20],
    "damaged": lambda: _changed(["rank"], None)[:60] + b"\0" * 50,
    "only a header": lambda: b"\x1f\x8b",
    "a decompression bomb": lambda: gzip_bomb(b'{"capture_version":1,"x":"', 600, b"a"),
    "a decompression bomb of many values": lambda: gzip.compress(
        b'{"capture_version":1,"x":[' + b"[]," * 41_000_000, 1
    ),
}
