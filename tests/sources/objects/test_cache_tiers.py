"""Tiers: what they take they keep, within their bytes, and a disk that fails costs no more than the tier."""

import logging
import multiprocessing
import os

import numpy as np
import pytest

from forebay.sources.objects.cache_tiers import RamTier
from forebay.sources.objects.disk_cache import DiskTier
from forebay.sources.objects.stored_object import Piece, StoredObject

OBJECT = StoredObject("s3://bucket/a.npy", "bucket/a.npy", 10_000, '"1"')
BLOCKS = [Piece(0, start, start + 1000, kept=True) for start in range(0, 10_000, 1000)]
DATA = bytes(range(250)) * 4


@pytest.fixture(params=["disk", "ram"])
def tier(request, tmp_path):
    return DiskTier(tmp_path / "cache", 4096) if request.param == "disk" else RamTier(4096)


def test_what_was_kept_is_found(tier):
    tier.keep(OBJECT, BLOCKS[0], DATA)
    assert tier.find(OBJECT, BLOCKS[0]).tobytes() == DATA
    assert tier.ready(BLOCKS[0]).tobytes() == DATA
    assert tier.has(OBJECT, BLOCKS[0])


def test_what_was_not_kept_is_not_found(tier):
    assert tier.find(OBJECT, BLOCKS[0]) is None
    assert not tier.has(OBJECT, BLOCKS[0])


def test_nothing_is_taken_beyond_the_budget_and_nothing_evicted(tier):
    assert [tier.keep(OBJECT, block, DATA) is not None for block in BLOCKS[:6]] == [True] * 4 + [False] * 2
    assert [tier.has(OBJECT, block) for block in BLOCKS[:6]] == [True] * 4 + [False] * 2
    assert tier.room_nbytes < 1000


def test_a_tier_says_what_it_holds(tier):
    tier.keep(OBJECT, BLOCKS[0], DATA)
    (reason,) = tier.reasons()
    assert reason.choice.endswith("held")


def test_the_disk_outlives_the_tier(tmp_path):
    DiskTier(tmp_path, 4096).keep(OBJECT, BLOCKS[0], DATA)
    again = DiskTier(tmp_path, 4096)
    assert again.has(OBJECT, BLOCKS[0])
    assert again.find(OBJECT, BLOCKS[0]).tobytes() == DATA


def test_another_version_of_an_object_is_not_found(tmp_path):
    tier = DiskTier(tmp_path, 4096)
    tier.keep(OBJECT, BLOCKS[0], DATA)
    assert tier.find(StoredObject(OBJECT.url, OBJECT.path, 10_000, '"2"'), BLOCKS[0]) is None


def test_an_object_without_a_version_is_not_kept_on_disk(tmp_path):
    assert DiskTier(tmp_path, 4096).keep(StoredObject(OBJECT.url, OBJECT.path, 10_000, ""), BLOCKS[0], DATA) is None


@pytest.mark.parametrize("damage", [b"", b"short", DATA + b"\0\0\0\0"])
def test_a_damaged_block_is_dropped_aloud(tmp_path, caplog, damage):
    DiskTier(tmp_path, 4096).keep(OBJECT, BLOCKS[0], DATA)
    (file,) = tmp_path.glob("*.block")
    file.write_bytes(damage)
    tier = DiskTier(tmp_path, 4096)
    assert tier.find(OBJECT, BLOCKS[0]) is None
    assert tier.keep(OBJECT, BLOCKS[0], DATA).tobytes() == DATA


def test_parts_that_were_left_behind_are_dropped_once_they_are_old(tmp_path):
    old, new = tmp_path / "a.block.1.2.part", tmp_path / "b.block.1.2.part"
    old.write_bytes(DATA)
    new.write_bytes(DATA)
    os.utime(old, (0, 0))
    assert DiskTier(tmp_path, 4096).room_nbytes == 4096 - 1000
    assert not old.exists()


def test_a_folder_that_cannot_be_made_is_told_and_gone_on_without(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    tier = DiskTier(tmp_path / "file", 4096)
    assert tier.keep(OBJECT, BLOCKS[0], DATA) is None
    assert "the cache is given up, and reading goes on without" in caplog.text
    assert tier.reasons()[0].choice == "given up"


def test_a_disk_that_fills_up_is_told_and_gone_on_without(tmp_path, caplog, monkeypatch):
    tier = DiskTier(tmp_path, 4096)
    monkeypatch.setattr("forebay.sources.objects.disk_cache._write", _full_disk)
    with caplog.at_level(logging.WARNING):
        assert tier.keep(OBJECT, BLOCKS[0], DATA) is None
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.glob("*.part"))
    assert tier.room_nbytes == 0


def _full_disk(part, data):
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - a device
        full.write(data)


def test_a_block_that_two_kept_at_the_same_time_is_counted_once(tmp_path):
    one, two = DiskTier(tmp_path, 4096), DiskTier(tmp_path, 4096)
    assert one.keep(OBJECT, BLOCKS[0], DATA).tobytes() == DATA
    assert two.keep(OBJECT, BLOCKS[0], DATA).tobytes() == DATA
    assert two.room_nbytes == 4096 - 1004
    assert not list(tmp_path.glob("*.part"))


def test_processes_keep_one_budget_together(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=keep_all, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sum(file.stat().st_size for file in tmp_path.glob("*.*")) == 5 * 1004
    assert DiskTier(tmp_path, 6000).room_nbytes == 6000 - 5 * 1004


def keep_all(folder, number):
    tier = DiskTier(folder, 6000)
    stored = StoredObject(f"s3://bucket/{number}.npy", "", 10_000, '"1"')
    kept = [tier.keep(stored, block, DATA) for block in BLOCKS]
    assert all(block is None or np.array_equal(block, np.frombuffer(DATA, np.uint8)) for block in kept)
