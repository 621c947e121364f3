"""Hostile capture files: the error names the file and the reason, and changed captures cause no other error."""

import gzip
import json
import random
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.model import hostile_captures as hostile

from forebay.cli.main import main
from forebay.doctor.model.capture import Capture
from forebay.errors import CaptureError


def test_there_are_at_least_fifty_hostile_files():
    assert len(hostile.FILES) >= 50


@pytest.mark.parametrize("name", hostile.FILES)
def test_a_hostile_capture_is_refused(tmp_path, name):
    (tmp_path / "run.gz").write_bytes(hostile.FILES[name]())
    with pytest.raises(CaptureError, match=r"run\.gz is (not a capture|a capture of version)"):
        Capture.load(tmp_path / "run.gz")


def test_the_unchanged_document_is_valid(tmp_path):
    (tmp_path / "run.gz").write_bytes(gzip.compress(json.dumps(hostile.document()).encode()))
    assert main(["doctor", "--html", str(tmp_path / "a.html"), str(tmp_path / "run.gz")]) == 0


JUNK = st.sampled_from([None, True, -1, 0, 1, 2**40, 2**62, 1e300, 1e-300, "", "x", "cuda:0", [], [1], {}, {"a": 1}])


@given(seed=st.integers(0, 2**32), values=st.lists(JUNK, min_size=1, max_size=3))
def test_a_changed_capture_is_refused_or_reported(tmp_path_factory, seed, values):
    folder = tmp_path_factory.mktemp("changed")
    document, rng = hostile.document(), random.Random(seed)
    for value in values:
        _replace_one(document, deepcopy(value), rng)  # a copy, because a later change may replace a part of this value
    (folder / "run.gz").write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    outputs = [f"--{kind}={folder / kind}" for kind in ("html", "json", "trace", "capture")]
    assert main(["doctor", *outputs, str(folder / "run.gz")]) in (0, 2)


def _replace_one(part, value, rng):
    """Replace a random value inside a list or an object, at a random depth."""
    while True:
        key = rng.choice([*part] if isinstance(part, dict) else [*range(len(part))])
        if not isinstance(part[key], dict | list) or not part[key] or rng.random() < 0.15:
            part[key] = value
            return
        part = part[key]
