"""A capture file: what is written is read again; anything else is refused in words."""

import gzip
import json

import pytest

from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.events import Event, Line
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
    events=(Event("upload", "torch.tensor", 0, 7, 20, 30, 400, {"dtype": "float32"}), Event("step", "s", -1, 7, 1, 2)),
    notes=("cupy is not watched",),
    facts={"settings": {}},
)


def test_what_is_written_is_read_again(tmp_path):
    CAPTURE.save(tmp_path / "run.capture")
    assert Capture.load(tmp_path / "run.capture") == CAPTURE


def test_source_text_can_be_left_out():
    assert CAPTURE.without_text().lines == (Line("train.py", 3, "train", ""),)


@pytest.mark.parametrize(
    "content",
    [b"", b"plain text", *(gzip.compress(text, mtime=0) for text in (b"[]", b"{", b"{}"))],
    ids=["nothing", "plain text", "a list", "half a document", "an empty one"],
)
def test_anything_else_is_refused(tmp_path, content):
    (tmp_path / "no.capture").write_bytes(content)
    with pytest.raises(CaptureError, match=r"no\.capture is not a capture"):
        Capture.load(tmp_path / "no.capture")


def test_another_version_is_refused_by_its_number(tmp_path):
    with gzip.open(tmp_path / "later.capture", "wt") as file:
        json.dump({"capture_version": 99}, file)
    with pytest.raises(CaptureError, match="version 99"):
        Capture.load(tmp_path / "later.capture")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CaptureError, match=r"nowhere\.capture"):
        Capture.load(tmp_path / "nowhere.capture")
