"""The disk cases: every contender reads, the file is forgotten in between, and what cannot be measured says why."""

import itertools
import shutil
from dataclasses import replace

import pytest

from forebay.measure.bench import cold
from forebay.measure.bench.cases.disk import DISK_CASES
from forebay.measure.bench.contenders import disk_feed, disk_fio, disk_mapped, disk_plain
from forebay.measure.bench.data import write_file
from forebay.measure.bench.meters import Pace, disk
from forebay.measure.bench.model import Skip

PACE = Pace(seconds=0.02, warm_up_seconds=0.0, repeats=1)


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A page cache that is busy forgets a file in the end."""
    monkeypatch.setattr(cold, "_TRIES", 600)


@pytest.fixture(params=DISK_CASES, ids=lambda case: case.name)
def work(request, tmp_path):
    """A case's work on some MiB, with the options of its first entry."""
    case = request.param
    small = replace(case.work, rows=4096, options={**case.work.options, **case.entries[0].options})
    path = write_file(small, "disk", tmp_path)
    return replace(small, path=str(path), options={**small.options, "host_bytes": 64 << 20, "block": 64})


@pytest.mark.parametrize("contender", [disk_plain, disk_feed, disk_mapped])
def test_every_contender_reads(work, contender, monkeypatch):
    clock = map((0.001).__mul__, itertools.count())  # goes on by a millisecond whenever somebody looks at it
    monkeypatch.setattr(contender, "perf_counter", clock.__next__)
    sample = disk.prepare(contender, work, PACE).sample()
    assert sample["speed"] > 0


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_reads(work, monkeypatch):
    monkeypatch.setattr(disk_fio, "DEPTHS", (8,))
    monkeypatch.setattr(disk_fio, "TRIED_SECONDS", 0.5)
    assert disk.prepare(disk_fio, work, PACE).sample()["speed"] > 0


def test_without_fio_the_reason_names_what_to_compare_with(work, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Skip, match="compare with the threads of preadv"):
        disk_fio.reading(work)


def test_a_folder_that_is_in_memory_is_not_taken_for_a_disk(work, monkeypatch):
    monkeypatch.setattr(cold, "cached_share", lambda file: 1.0)
    monkeypatch.setattr(cold, "_TRIES", 1)
    with pytest.raises(Skip, match="Set TMPDIR to a folder on a disk"):
        disk.prepare(disk_plain, work, PACE)


def test_a_disk_without_room_is_not_filled_up(work, monkeypatch, tmp_path):
    monkeypatch.setattr(cold, "_LEFT_FREE", 1 << 40)
    missing = replace(work, path=str(write_file(work, "disk", made(tmp_path / "none"))))
    with pytest.raises(Skip, match="no room for the file"):
        disk.prepare(disk_plain, missing, PACE)


def made(folder):
    folder.mkdir()
    return folder
