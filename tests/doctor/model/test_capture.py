"""Capture files: a saved capture loads again, other files are refused, and the source text can be removed."""

import gzip
import json

import pytest

from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.events import LedgerEvent, Line
from forebay.doctor.model.redaction import without_source
from forebay.doctor.model.step_history import LongStep, StackFrame, StepBlock, StepHistory
from forebay.errors import CaptureError

CAPTURE = Capture(
    script="train.py",
    arguments=("--lr", "1"),
    ended="done",
    seconds=1.5,
    machine={"cores": 2},
    versions={"numpy": "2.0"},
    window=Window(10, 90, ("step", "optimizer.step", 0), (0.1, 0.2)),
    lines=(Line("train.py", 3, "train", "optimizer.step()"),),
    events=(
        LedgerEvent("upload", "torch.tensor", 0, 7, 20, 30, 400, {"dtype": "float32"}),
        LedgerEvent("step", "s", -1, 7, 1, 2),
    ),
    notes=("cupy is not recorded",),
    history=StepHistory(
        (StackFrame(-1, 0), StackFrame(0, -1, "torch.save")),
        (StepBlock(40, 1.0, 0.02, ((0, 7),)),),
        (LongStep(20, 0.2, (1, 0)),),
        1,
        0.2,
        0.18,
        ((1, 170_000_000),),
    ),
    facts={"settings": {}, "script": {"files": [{"file": "train.py", "lines": [[3, "optimizer.step()"]]}]}},
)


def test_a_saved_capture_loads_again(tmp_path):
    CAPTURE.save(tmp_path / "run.capture")
    assert Capture.load(tmp_path / "run.capture") == CAPTURE


@pytest.mark.parametrize(
    "content",
    [b"", b"plain text", *(gzip.compress(text, mtime=0) for text in (b"[]", b"{", b"{}"))],
    ids=["an empty file", "plain text", "a list", "half a document", "an empty document"],
)
def test_a_file_that_is_not_a_capture_is_refused(tmp_path, content):
    (tmp_path / "no.capture").write_bytes(content)
    with pytest.raises(CaptureError, match=r"no\.capture is not a capture"):
        Capture.load(tmp_path / "no.capture")


def test_a_capture_of_another_version_is_refused(tmp_path):
    with gzip.open(tmp_path / "later.capture", "wt") as file:
        json.dump({"capture_version": 99}, file)
    with pytest.raises(CaptureError, match="version 99"):
        Capture.load(tmp_path / "later.capture")


def test_a_missing_file_cannot_be_read(tmp_path):
    with pytest.raises(CaptureError, match=r"^cannot read .*nowhere\.capture: No such file or directory\. Pass"):
        Capture.load(tmp_path / "nowhere.capture")


def test_a_capture_without_source_has_no_excerpt_of_the_script():
    assert "optimizer.step()" not in str(without_source(CAPTURE).facts)
    assert without_source(CAPTURE).facts["settings"] == {}
