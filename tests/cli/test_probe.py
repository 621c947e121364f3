"""The command `forebay probe`: measuring, showing saved results, interrupting."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from io import StringIO

import pytest
from rich.console import Console
from tests.support.run_python import TERMINAL, run_python

from forebay.cli.probe import render
from forebay.core.ceilings import (
    CopySpeed,
    DeviceCeilings,
    DiskCeilings,
    HostCeilings,
    HostGather,
    Probe,
    RowSpeed,
    RowSpeeds,
)
from forebay.core.hardware import Hardware

ROW_NBYTES = (64, 400, 4096, 65536, 150528)
TIMEOUT_SECONDS = 200  # for one command on a busy machine
pytestmark = pytest.mark.timeout(600)


def rows(*gigabytes_per_second):
    pairs = zip(ROW_NBYTES, gigabytes_per_second, strict=True)
    return RowSpeeds(tuple(RowSpeed(row_nbytes, speed * 1e9) for row_nbytes, speed in pairs))


def copies(*pairs):
    return tuple(CopySpeed(threads, speed * 1e9) for threads, speed in pairs)


PROBE = Probe(
    hardware=Hardware("Intel(R) Xeon(R) Platinum 8480C", 16, 128 << 30, ("NVIDIA H200",), "580.95.05"),
    measured_at=datetime(2026, 7, 30, 14, 2).astimezone(),
    seconds=9.84,
    host=HostCeilings(
        copies=copies((1, 8.8), (2, 15.2), (4, 24.04), (8, 31), (16, 33)),
        gathers=(HostGather(1, rows(1.9, 4.1, 8, 8.4, 8.5)), HostGather(8, rows(9.9, 24, 41, 35, 32))),
    ),
    disk=DiskCeilings("/tmp", "ext4", 3.3e9, 9.8e9),
    device=DeviceCeilings(
        name="NVIDIA H200",
        free_nbytes=139 << 30,
        total_nbytes=140 << 30,
        pcie_generation=5,
        pcie_width=16,
        host_to_device_bytes_per_second=54.8e9,
        device_to_host_bytes_per_second=55.2e9,
        both_ways_bytes_per_second=98.3e9,
        pageable_host_to_device_bytes_per_second=8e9,
        pageable_device_to_host_bytes_per_second=14.2e9,
        page_lock_bytes_per_second=13.1e9,
        small_copy_seconds=5.1e-6,
        readback_seconds=10e-6,
        launch_seconds=None,
        launch_and_wait_seconds=8.25e-6,
        pull=rows(16, 47, 50, 50, 50),
        batched_copy=rows(0.05, 0.3, 2, 45, 44),
    ),
    missing=("launches: libnvrtc.so.13 was not found.",),
)

SHOWN = """\
Intel(R) Xeon(R) Platinum 8480C, 16 cores, 128.0 GiB
NVIDIA H200, 139.0 GiB of 140.0 GiB free, PCIe 5 x16, driver 580.95.05
Measured on 2026-07-30 14:02 in 10 s. Medians; 1 GB = 10^9 bytes.
These are saved results. Run `forebay probe --fresh` to measure again.

Copies in host memory, GB/s
threads    1     2     4     8    16
memcpy   8.8  15.2  24.0  31.0  33.0

Shuffled rows, GB/s, by row size in bytes
                    64   400  4,096  65,536  150,528
CPU, 1 thread      1.9   4.1    8.0     8.4      8.5
CPU, 8 threads     9.9  24.0   41.0    35.0     32.0
GPU, kernel       16.0  47.0   50.0    50.0     50.0
GPU, DMA per row  0.05  0.30    2.0    45.0     44.0

Copies over the link, GB/s
                     page-locked  pageable
host to device              54.8       8.0
device to host              55.2      14.2
both at once, total         98.3
page-locking                13.1

Latencies, microseconds
4 KiB to device, queued          5.1
4 bytes from device, with wait  10.0
empty kernel, queued               -
empty kernel, with wait          8.2

File reads in /tmp (ext4), GB/s
from disk        3.3
from page cache  9.8

Not measured
launches: libnvrtc.so.13 was not found.
"""


def draw(probe, *, cached=True):
    out = StringIO()
    console = Console(file=out, width=80, color_system=None, highlight=False)
    for part in render(probe, cached=cached):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_the_report_equals_its_snapshot():
    assert draw(PROBE) == SHOWN


def test_many_cores_and_no_gpu_fit_into_80_columns():
    many = copies(*((threads, 250.0) for threads in (1, 2, 4, 8, 16, 32, 64, 128, 192)))
    shown = draw(replace(PROBE, host=replace(PROBE.host, copies=many), device=None, disk=None))
    assert shown.count("250.0") == 9
    assert "link" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def settings(folder):
    return {"XDG_CACHE_HOME": str(folder), "TMPDIR": str(folder)} | TERMINAL


def forebay_probe(folder, *arguments):
    return run_python("-m", "forebay", "probe", *arguments, seconds=TIMEOUT_SECONDS, **settings(folder))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A cache folder, and the result of the command that filled it."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, forebay_probe(folder)


def test_the_first_call_measures_without_progress_outside_of_a_terminal(measured):
    _, done = measured
    assert done.returncode == 0
    assert done.stderr == ""
    assert "CPU, 1 thread" in done.stdout
    assert "from page cache" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_the_second_call_shows_the_saved_results(measured):
    folder, first = measured
    again = forebay_probe(folder)
    assert again.stderr == ""
    assert "--fresh` to measure again" in again.stdout
    assert again.stdout.splitlines()[-10:] == first.stdout.splitlines()[-10:]


def test_only_one_file_is_written(measured):
    folder, _ = measured
    assert [path.name for path in folder.iterdir()] == ["forebay"]
    assert [path.name[:6] for path in (folder / "forebay").iterdir()] == ["probe-"]


def test_json_output_equals_the_saved_probe(measured):
    folder, _ = measured
    document = json.loads(forebay_probe(folder, "--json").stdout)
    assert document["schema_version"] == 1
    assert document["host"]["copies"][0]["bytes_per_second"] > 1e6
    assert [document] == [json.loads(path.read_text()) for path in (folder / "forebay").iterdir()]


@pytest.mark.long
def test_fresh_measures_again(measured):
    folder, _ = measured
    before = json.loads(forebay_probe(folder, "--json").stdout)
    fresh = forebay_probe(folder, "--fresh", "--json")
    assert fresh.stderr == ""
    assert json.loads(fresh.stdout)["host"] != before["host"]
    assert json.loads(forebay_probe(folder, "--json").stdout) == json.loads(fresh.stdout)


@pytest.mark.long
def test_results_that_cannot_be_saved_are_still_shown(tmp_path):
    (tmp_path / "forebay").write_text("in the way")
    done = forebay_probe(tmp_path)
    assert "CPU, 1 thread" in done.stdout
    assert done.returncode == 2
    assert "Set XDG_CACHE_HOME" in " ".join(done.stderr.split())


# A measurement that continues until it is interrupted.
ENDLESS = """
import sys
from forebay.cli.main import main
from forebay.measure.probe import {part}

def endless(sample, **_):
    print("measuring", file=sys.stderr, flush=True)
    while True:
        sample()

{part}.measure_median = endless
sys.exit(main(["probe"]))
"""


@pytest.mark.parametrize("part", ["host", "disk"])
def test_an_interrupt_leaves_no_file(tmp_path, part):
    command = [sys.executable, "-c", ENDLESS.format(part=part)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | settings(tmp_path)) as running:
        assert running.stderr.readline().strip() == "measuring"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=TIMEOUT_SECONDS)
    assert running.returncode == 130
    assert errors.strip() == "interrupted"
    assert list(tmp_path.iterdir()) == []
