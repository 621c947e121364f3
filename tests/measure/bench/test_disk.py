"""The disk cases: every contender reads, and entries that cannot be measured give a reason."""

import itertools
import os
import shutil
from dataclasses import replace

import pytest

from forebay.measure.bench import uncached_file
from forebay.measure.bench.cases.disk import DISK_CASES
from forebay.measure.bench.contenders import disk as disk_contenders
from forebay.measure.bench.contenders import forebay as forebay_contenders
from forebay.measure.bench.data import write_file
from forebay.measure.bench.meters import RunSettings, disk
from forebay.measure.bench.model import Skip
from forebay.sources.direct import page_cache

SETTINGS = RunSettings(seconds=0.02, warm_up_seconds=0.0, repeats=1)


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Give a busy page cache time to drop the file."""
    monkeypatch.setattr(uncached_file, "_ATTEMPTS", 600)


@pytest.fixture(params=DISK_CASES, ids=lambda case: case.name)
def work(request, tmp_path):
    """The workload of a case, with few rows and the options of its first entry."""
    case = request.param
    small = replace(case.work, rows=4096, options={**case.work.options, **case.entries[0].options})
    path = write_file(small, "disk", tmp_path)
    return replace(small, path=str(path), options={**small.options, "host_bytes": 64 << 20, "block": 64})


@pytest.mark.parametrize(
    ("module", "contender"),
    [
        (disk_contenders, disk_contenders.preadv_threads),
        (forebay_contenders, forebay_contenders.disk_feed),
        (disk_contenders, disk_contenders.mapped_take),
    ],
)
def test_every_contender_reports_its_speed(work, module, contender, monkeypatch):
    # A clock that advances by 1 ms at every reading, so that no contender measures zero seconds.
    clock = map((0.001).__mul__, itertools.count())
    monkeypatch.setattr(module, "perf_counter", clock.__next__)
    sample = disk.prepare(contender, work, SETTINGS).sample()
    assert sample["speed"] > 0


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_reports_its_speed(work, monkeypatch):
    monkeypatch.setattr(disk_contenders, "QUEUE_DEPTHS", (8,))
    monkeypatch.setattr(disk_contenders, "TRIAL_SECONDS", 0.5)
    assert disk.prepare(disk_contenders.fio, work, SETTINGS).sample()["speed"] > 0


def test_without_fio_the_entry_is_skipped_and_the_reason_names_an_alternative(work, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Skip, match="Compare with the entry 'threads of preadv'"):
        disk_contenders.fio(work)


def test_the_case_is_skipped_if_its_file_stays_in_the_page_cache(work, monkeypatch):
    monkeypatch.setattr(page_cache, "cached_share", lambda file: 1.0)
    monkeypatch.setattr(uncached_file, "_ATTEMPTS", 1)
    with pytest.raises(Skip, match="Set TMPDIR to a folder on a disk"):
        disk.prepare(disk_contenders.preadv_threads, work, SETTINGS)


def test_the_case_is_skipped_if_the_system_cannot_drop_files(work, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise")
    with pytest.raises(Skip, match="Measure disks on Linux"):
        disk.prepare(disk_contenders.preadv_threads, work, SETTINGS)


def test_the_case_is_skipped_if_the_disk_has_too_little_space(work, monkeypatch, tmp_path):
    monkeypatch.setattr(uncached_file, "_FREE_SPACE_FACTOR", 1 << 40)  # no disk has this much space
    # `write_file` writes nothing if the disk has too little space.
    work_without_file = replace(work, path=str(write_file(work, "disk", make_folder(tmp_path / "none"))))
    with pytest.raises(Skip, match="no space for the file"):
        disk.prepare(disk_contenders.preadv_threads, work_without_file, SETTINGS)


def make_folder(folder):
    folder.mkdir()
    return folder
