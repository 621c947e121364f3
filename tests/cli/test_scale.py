"""`forebay scale` as people call it."""

import json

import pytest
from tests.measure.simulate.test_scenario_file import PROBE

from forebay.cli.main import main
from forebay.core.ceilings import Probe


def test_it_says_what_holds_a_scenario_back(capsys):
    assert main(["scale", "images", "--hosts", "16", "--steps", "30", "--set", "store.bytes_per_second=1e9"]) == 0
    told = capsys.readouterr().out
    assert "16 x 8 = 128 GPUs" in told
    assert "what holds it back: store" in told


@pytest.mark.parametrize("name", ["images", "tables", "tokens"])
def test_as_json_it_holds_every_part(name, capsys):
    assert main(["scale", name, "--steps", "30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["bottleneck"] in [part["name"] for part in document["parts"]]
    assert 0 < document["busy_share"] <= 1


def test_a_mistake_is_told_and_ends_with_two(capsys):
    assert main(["scale", "images", "--set", "host.gpus=0"]) == 2
    assert "host.gpus is 0" in capsys.readouterr().err


def test_figures_of_a_probe_need_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["scale", "images", "--probed"]) == 2
    assert "run `forebay probe`" in capsys.readouterr().err


def test_it_says_which_figures_of_the_probe_it_took(capsys, monkeypatch):
    monkeypatch.setattr(Probe, "cached", lambda: PROBE)
    assert main(["scale", "images", "--probed", "--steps", "30"]) == 0
    assert "as probed: disk 1.5 GB/s, link as described: none was probed" in " ".join(capsys.readouterr().out.split())
    assert main(["scale", "images", "--probed", "--steps", "30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["probed"] == {"disk_bytes_per_second": 1.5e9}
