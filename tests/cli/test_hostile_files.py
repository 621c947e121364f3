"""Commands refuse damaged or hostile files without a traceback."""

import json

import pytest
from tests.doctor.report import report_samples as samples

from forebay.cli.main import main
from forebay.core.ceilings import Probe
from forebay.core.hardware import Hardware
from forebay.core.json_values import cache_folder
from forebay.doctor.report.document import to_document

CONTENTS = {
    "nothing": b"",
    "not UTF-8": b"\xff\xfe",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a deep value": b"a = " + b"[" * 100_000,
    "NaN": b'{"schema_version": NaN}',
    "a huge number": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "another version": b'{"schema_version": 99}',
    "the version alone": b'{"schema_version": 1}',
    "a bomb": b"[" + b"0," * (40 << 20),
    "a gzip header": b"\x1f\x8b",
}


@pytest.fixture
def hostile(tmp_path, request):
    path = tmp_path / "hostile.file"
    path.write_bytes(CONTENTS[request.param])
    return path


@pytest.mark.parametrize("hostile", CONTENTS, indirect=True)
@pytest.mark.parametrize(
    "command", [["bench", "--show"], ["scale"], ["doctor", "--compare", "{}"]], ids=["bench", "scale", "doctor"]
)
def test_a_hostile_file_is_refused(hostile, capfd, command):
    assert main([part.format(hostile) for part in command] + [str(hostile)]) == 2
    assert capfd.readouterr().err.startswith("forebay ")


@pytest.mark.parametrize("hostile", CONTENTS, indirect=True)
def test_a_hostile_probe_is_ignored(hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir()
    hostile.rename(cache_folder() / f"probe-{Hardware.detect().fingerprint}.json")
    assert Probe.cached() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step_seconds", "x"),
        ("step_seconds", -1),
        ("step_quartiles", [1]),
        ("step_quartiles", "ab"),
        ("parts_seconds", {"a": None}),
        ("parts_seconds", []),
        ("findings", 5),
        ("findings", [{}]),
        ("findings", [{"rule": 1}] * 1001),
        ("machine", None),
        ("versions", [1]),
        ("gpus", [1]),
        ("script", 5),
    ],
)
def test_a_document_with_a_wrong_value_is_refused(tmp_path, capfd, key, value):
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(to_document(samples.ordinary()) | {key: value}))
    assert main(["doctor", "--compare", str(path), str(path)]) == 2
    assert "hostile.json is damaged" in " ".join(capfd.readouterr().err.replace("\n", "").split())


def test_a_capture_without_steps_cannot_be_compared(tmp_path, capfd):
    samples.no_loop().view.capture.save(tmp_path / "run.gz")
    assert main(["doctor", "--compare", str(tmp_path / "run.gz"), str(tmp_path / "run.gz")]) == 2
    assert "found no step" in " ".join(capfd.readouterr().err.split())


def test_a_change_of_a_section_that_is_not_a_table_is_refused(tmp_path, capfd):
    (tmp_path / "hostile.toml").write_text("data = 3\n")
    assert main(["scale", str(tmp_path / "hostile.toml"), "--set", "data.rows=5"]) == 2
    assert "Make it a table" in " ".join(capfd.readouterr().err.split())


def test_the_error_of_an_unknown_case_does_not_blame_the_results_file(tmp_path, capfd):
    assert main(["bench", "--case", "nothing", "--show", str(tmp_path / "results.json")]) == 2
    assert "is not a file of bench results" not in " ".join(capfd.readouterr().err.split())


def test_a_damaged_capture_is_not_run_as_a_script(tmp_path, capfd):
    (tmp_path / "run.gz").write_bytes(b"print('it ran')")
    assert main(["doctor", str(tmp_path / "run.gz")]) == 2
    printed = capfd.readouterr()
    assert "is not a capture" in " ".join(printed.err.split())
    assert "it ran" not in printed.out


@pytest.mark.parametrize(
    "change",
    [{"schema_version": "\x1b[2J"}, {"parts_seconds": {"\x1b[2J": 1.0}}, {"parts_seconds": {"\x1b[2J": "x"}}],
    ids=["version", "part", "damaged part"],
)
def test_the_terminal_receives_no_control_characters_of_a_document(tmp_path, capfd, change):
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(to_document(samples.ordinary()) | change))
    main(["doctor", "--compare", str(path), str(path)])
    output = capfd.readouterr()
    assert "\x1b" not in output.out + output.err


def test_the_terminal_receives_no_control_characters_of_a_scenario(tmp_path, capfd):
    (tmp_path / "hostile.toml").write_text(
        'title = "\\u001b[2J"\n[data]\nrows = 1000\nrow_nbytes = 4\n[training]\nbatch_rows = 8\ncompute_seconds = 1\n'
    )
    assert main(["scale", str(tmp_path / "hostile.toml")]) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_an_output_that_is_a_link_to_the_capture_does_not_overwrite_it(tmp_path, capfd):
    samples.ordinary().view.capture.save(tmp_path / "run.gz")
    (tmp_path / "link.html").symlink_to("run.gz")
    assert main(["doctor", "--html", str(tmp_path / "link.html"), str(tmp_path / "run.gz")]) == 2
    assert "would overwrite the input" in " ".join(capfd.readouterr().err.split())
