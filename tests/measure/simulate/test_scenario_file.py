"""Scenarios from TOML: built-in scenarios, changes and errors."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forebay.core.ceilings import CopySpeed, DiskCeilings, HostCeilings, HostGather, Probe, RowSpeed, RowSpeeds
from forebay.core.hardware import Hardware
from forebay.errors import ScenarioError
from forebay.measure.simulate.scenario_file import builtin_scenarios, read_scenario, with_probed_speeds

PROBE = Probe(
    Hardware("CPU", 4, 8 << 30, (), ""),
    datetime(2026, 7, 30, tzinfo=UTC),
    9.5,
    HostCeilings((CopySpeed(1, 8e9),), (HostGather(1, RowSpeeds((RowSpeed(64, 1e9),))),)),
    DiskCeilings("/tmp", "ext4", 1.5e9, 9e9),
    None,
    (),
)


@pytest.fixture
def write_scenario(tmp_path):
    def write(text):
        path = tmp_path / "cluster.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", builtin_scenarios())
def test_builtin_scenarios_are_complete(name):
    assert read_scenario(name).title


def test_a_file_defines_the_scenario(write_scenario):
    made = read_scenario(
        write_scenario(
            "hosts = 3\n[data]\nrows = 1e6\nrow_nbytes = 400\n[training]\nbatch_rows = 8\ncompute_seconds = 1\n"
        )
    )
    assert (made.hosts, made.data.rows, made.training.compute_seconds) == (3, 1_000_000, 1.0)


def test_changes_apply_in_order():
    made = read_scenario("images", ["hosts=64", "host.gpus=4", "host.gpus=2", "maps.where=remote", "data.rows = 1e9"])
    assert (made.hosts, made.host.gpus, made.maps.where, made.data.rows) == (64, 2, "remote", 10**9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("hosts=0", "hosts is 0"),
        ("hosts=2.5", "hosts is 2.5"),
        ("hosts=1000000000", "Give at most 200000"),
        ("hosts", "'hosts' is not a change"),
        ("hots=3", "has no 'hots'"),
        ("tape.speed=3", "one of data, training"),
        ("host.gpu=3", r"\[host\] has no field 'gpu'"),
        ("host.gpus=many", "host.gpus is 'many'"),
        ("host.gpus=true", "host.gpus is True"),
        ("host.gpus=-1", "host.gpus is -1"),
        ("host.gpus_per_switch=3", "Give a divisor of 8"),
        ("host.link_bytes_per_second=0", "host.link_bytes_per_second is 0"),
        ("host.link_bytes_per_second=nan", "is nan"),
        ("training.compute_seconds=inf", "training.compute_seconds is inf"),
        ("training.compute_seconds=-1", "training.compute_seconds is -1"),
        ("maps.where=moon", "Choose one of nowhere, host, remote"),
        ("maps.where=3", "maps.where is 3. Give a string"),
        ("data.source=tape", "Choose one of memory, disk, store"),
        ("data.cached_share=2", "data.cached_share is 2"),
        ("store.connections=0", "store.connections is 0"),
    ],
)
def test_an_invalid_change_is_refused_with_its_value(change, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario("images", [change])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts = ", "is not TOML"),
        ("data = 3\n[training]\n", "Make it a table"),
        ("[training]\nbatch_rows = 3\ncompute_seconds = 1", r"no \[data\]"),
        ("[data]\nrows = 3\nrow_nbytes = 4", r"no \[training\]"),
        ("[data]\nrows = 3\n[training]\nbatch_rows = 3\ncompute_seconds = 1", r"\[data\] is incomplete.*row_nbytes"),
    ],
)
def test_an_invalid_file_is_refused(write_scenario, text, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(write_scenario(text))


def test_an_unknown_scenario_is_refused_with_the_builtin_names():
    with pytest.raises(ScenarioError, match=r"'nowhere.toml'.*images, tables, tokens"):
        read_scenario("nowhere.toml")


def test_a_folder_is_refused_because_it_cannot_be_read(tmp_path):
    with pytest.raises(ScenarioError, match=r"cannot be read: Is a directory\. Give a TOML file\."):
        read_scenario(str(tmp_path))


def test_a_probe_sets_the_disk_speed():
    made = with_probed_speeds(read_scenario("images"), PROBE)
    assert made.host.disk_bytes_per_second == 1.5e9


def test_a_probe_without_a_disk_changes_nothing():
    made = read_scenario("images")
    assert with_probed_speeds(made, replace(PROBE, disk=None)) == made
