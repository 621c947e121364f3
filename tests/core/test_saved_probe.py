"""A saved probe is read back equal, and a damaged file is never trusted."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.probes import MACHINE, PROBE, refuse

from forebay.core import json_values
from forebay.core.ceilings import Probe
from forebay.core.hardware import Hardware
from forebay.measure.probe import measure


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache folder, on a machine with fixed hardware."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "detect", classmethod(lambda cls: MACHINE))
    return tmp_path / "forebay"


def test_a_saved_probe_is_read_back_equal(folder):
    assert Probe.cached() is None
    assert PROBE.save() == folder / f"probe-{MACHINE.fingerprint}.json"
    assert Probe.cached() == PROBE


def test_a_saved_probe_is_plain_json_with_a_version_and_units(folder):
    document = json.loads(PROBE.save().read_text())
    assert document["schema_version"] == 1
    assert document["host"]["copies"][0] == {"threads": 1, "bytes_per_second": 8e9}
    assert document["measured_at"] == "2026-07-30T00:00:00+00:00"


def test_reading_the_cached_probe_measures_nothing(folder, monkeypatch):
    monkeypatch.setattr(measure, "measure_ceilings", refuse)
    PROBE.save()
    assert Probe.cached() == PROBE
    (folder / f"probe-{MACHINE.fingerprint}.json").unlink()
    assert Probe.cached() is None


def test_reading_the_cached_probe_imports_no_measuring_code():
    script = (
        "import sys, forebay.core.ceilings as p; p.Probe.cached(); print([n for n in sys.modules if 'forebay' in n])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "forebay.core.ceilings" in loaded
    assert "forebay.measure.probe.measure" not in loaded


def test_without_any_saved_probe_the_hardware_is_not_detected(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Hardware, "detect", refuse)
    assert Probe.cached() is None


def test_a_probe_of_another_machine_is_not_used(folder, caplog):
    path = PROBE.save()
    path.write_text(json.dumps(replace(PROBE, hardware=replace(MACHINE, cores=64)).to_json()))
    assert Probe.cached() is None
    assert "another machine" in caplog.text


def paths_of(document, path=()):
    """Yield the path and the value of each element inside a JSON document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key), value
        if isinstance(value, dict | list):
            yield from paths_of(value, (*path, key))


PATHS = [pair for pair in paths_of(PROBE.to_json()) if pair[0] != ("schema_version",)]
NUMBERS = [place for place, value in PATHS if isinstance(value, int | float)]
REST = [place for place, value in PATHS if not isinstance(value, int | float)]
FIELDS = [place for place, _ in PATHS if isinstance(place[-1], str)]
WRONG = [-1.5, float("nan"), float("inf"), "", True, {}, [[]], 10**400]


def holder_of(document, place):
    for key in place[:-1]:
        document = document[key]
    return document


def read_and_write(document):
    """Read and write the document, or return None if reading raises ValueError."""
    try:
        return json_values.from_json(Probe, document).to_json()
    except ValueError:
        return None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(NUMBERS))
def test_a_wrong_number_anywhere_is_refused(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_write(document) is None


@given(wrong=st.sampled_from(WRONG), place=st.sampled_from(REST))
def test_any_other_wrong_value_is_refused_or_preserved(wrong, place):
    document = copy.deepcopy(PROBE.to_json())
    holder_of(document, place)[place[-1]] = wrong
    assert read_and_write(document) in (None, document)


@given(place=st.sampled_from(FIELDS))
def test_a_missing_field_anywhere_is_refused(place):
    document = copy.deepcopy(PROBE.to_json())
    del holder_of(document, place)[place[-1]]
    assert read_and_write(document) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema_version": 2}', b"[" * 100_000])
def test_a_damaged_file_is_ignored_with_a_warning(folder, caplog, content):
    PROBE.save().write_bytes(content)
    assert Probe.cached() is None
    assert "forebay probe --fresh" in caplog.text


@given(share=st.floats(0, 0.99))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    text = json.dumps(PROBE.to_json())
    path = tmp_path_factory.mktemp("cut") / "probe.json"
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(ValueError, match=r"."):
        Probe._read(path, MACHINE)


def test_interrupted_saving_leaves_only_the_old_file(folder, monkeypatch):
    path = PROBE.save()
    monkeypatch.setattr(json_values.json, "dump", lambda *_, **__: exec("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        replace(PROBE, seconds=1.0).save()
    assert list(folder.iterdir()) == [path]
    assert Probe.cached() == PROBE


def test_a_cache_folder_that_cannot_be_made_raises_with_advice(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Probe.cached() is None
    with pytest.raises(OSError, match="Set XDG_CACHE_HOME"):
        PROBE.save()


def test_a_relative_cache_home_is_ignored_as_the_standard_requires(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/user")
    assert json_values.cache_folder() == Path("/home/user/.cache/forebay")
