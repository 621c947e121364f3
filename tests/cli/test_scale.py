"""The command `forebay scale`."""

import json

import pytest
from tests.measure.simulate.test_scenario_file import PROBE

from forebay.cli.main import main
from forebay.core.ceilings import Probe


def test_scale_names_the_bottleneck(capsys):
    assert main(["scale", "images", "--hosts", "16", "--steps", "30", "--set", "store.bytes_per_second=1e9"]) == 0
    output = capsys.readouterr().out
    assert "16 x 8 = 128 GPUs" in output
    assert "Bottleneck: store" in output


@pytest.mark.parametrize("name", ["images", "tables", "tokens"])
def test_json_contains_the_bottleneck_and_the_busy_share(name, capsys):
    assert main(["scale", name, "--steps", "30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["bottleneck"] in [part["name"] for part in document["parts"]]
    assert 0 < document["busy_share"] <= 1


def test_a_mistake_gives_a_message_and_exit_code_2(capsys):
    assert main(["scale", "images", "--set", "host.gpus=0"]) == 2
    assert "host.gpus is 0" in capsys.readouterr().err


def test_probed_needs_a_saved_probe(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["scale", "images", "--probed"]) == 2
    assert "run `forebay probe`" in capsys.readouterr().err


def test_scale_names_the_speeds_from_the_probe(capsys, monkeypatch):
    monkeypatch.setattr(Probe, "cached", lambda: PROBE)
    assert main(["scale", "images", "--probed", "--steps", "30"]) == 0
    assert "of this machine: disk 1.5 GB/s, link from the scenario (not probed)." in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["scale", "images", "--probed", "--steps", "30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["probed"] == {"disk_bytes_per_second": 1.5e9}
