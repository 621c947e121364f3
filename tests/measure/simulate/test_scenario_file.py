"""Scenarios from TOML: what is known, what is changed, and what is refused."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forebay.core.ceilings import CopySpeed, DiskFigures, HostFigures, HostGather, Probe, RowSpeed, RowSpeeds
from forebay.core.hardware import Hardware
from forebay.errors import ScenarioError
from forebay.measure.simulate.scenario_file import known_scenarios, probed, read_scenario

PROBE = Probe(
    Hardware("CPU", 4, 8 << 30, (), ""),
    datetime(2026, 7, 30, tzinfo=UTC),
    9.5,
    HostFigures((CopySpeed(1, 8e9),), (HostGather(1, RowSpeeds((RowSpeed(64, 1e9),))),)),
    DiskFigures("/tmp", "ext4", 1.5e9, 9e9),
    None,
    (),
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "cluster.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", known_scenarios())
def test_scenarios_that_come_with_the_package_are_whole(name):
    assert read_scenario(name).title


def test_a_file_says_what_the_scenario_is(written):
    made = read_scenario(
        written("hosts = 3\n[data]\nrows = 1e6\nrow_nbytes = 400\n[training]\nbatch_rows = 8\ncompute_seconds = 1\n")
    )
    assert (made.hosts, made.data.rows, made.training.compute_seconds) == (3, 1_000_000, 1.0)


def test_changes_are_made_one_after_the_other():
    made = read_scenario("images", ["hosts=64", "host.gpus=4", "host.gpus=2", "maps.where=remote", "data.rows = 1e9"])
    assert (made.hosts, made.host.gpus, made.maps.where, made.data.rows) == (64, 2, "remote", 10**9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("hosts=0", "hosts is 0"),
        ("hosts=2.5", "hosts is 2.5"),
        ("hosts", "'hosts' changes nothing"),
        ("hots=3", r"\['hots'\] are no parts"),
        ("tape.speed=3", "one of data, training"),
        ("host.gpu=3", r"\[host\] has no 'gpu'"),
        ("host.gpus=many", "host.gpus is 'many'"),
        ("host.gpus=true", "host.gpus is True"),
        ("host.gpus=-1", "host.gpus is -1"),
        ("host.gpus_per_switch=3", "a divisor of 8"),
        ("host.link_bytes_per_second=0", "host.link_bytes_per_second is 0"),
        ("host.link_bytes_per_second=nan", "is nan"),
        ("training.compute_seconds=inf", "training.compute_seconds is inf"),
        ("training.compute_seconds=-1", "training.compute_seconds is -1"),
        ("maps.where=moon", "choose one of nowhere, host, remote"),
        ("maps.where=3", "maps.where is 3: give a word"),
        ("data.source=tape", "choose one of memory, disk, store"),
        ("data.cached_share=2", "data.cached_share is 2"),
        ("store.connections=0", "store.connections is 0"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_its_value(change, told):
    with pytest.raises(ScenarioError, match=told):
        read_scenario("images", [change])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hosts = ", "is not TOML"),
        ("data = 3\n[training]\n", "make it a table"),
        ("[training]\nbatch_rows = 3\ncompute_seconds = 1", r"no \[data\]"),
        ("[data]\nrows = 3\nrow_nbytes = 4", r"no \[training\]"),
        ("[data]\nrows = 3\n[training]\nbatch_rows = 3\ncompute_seconds = 1", r"\[data\] is not whole.*row_nbytes"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(written, text, told):
    with pytest.raises(ScenarioError, match=told):
        read_scenario(written(text))


def test_a_scenario_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ScenarioError, match=r"'nowhere.toml'.*images, tables, tokens"):
        read_scenario("nowhere.toml")


def test_a_probe_gives_its_disk():
    made = probed(read_scenario("images"), PROBE)
    assert made.host.disk_bytes_per_second == 1.5e9


def test_a_probe_without_a_disk_changes_nothing():
    made = read_scenario("images")
    assert probed(made, replace(PROBE, disk=None)) == made
