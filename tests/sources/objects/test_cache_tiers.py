"""Cache tiers hold blocks within their budget. A failing disk disables only its tier."""

import logging
import multiprocessing
import os

import numpy as np
import pytest

from forebay.sources.objects.cache_folder import UnpublishedFile
from forebay.sources.objects.cache_tiers import RamTier
from forebay.sources.objects.disk_cache import DiskTier
from forebay.sources.objects.stored_object import ByteRange, StoredObject

OBJECT = StoredObject("s3://bucket/a.npy", "bucket/a.npy", 10_000, '"1"')
BLOCKS = [ByteRange(0, start, start + 1000, cacheable=True) for start in range(0, 10_000, 1000)]
DATA = bytes(range(250)) * 4


@pytest.fixture(params=["disk", "ram"])
def tier(request, tmp_path):
    return DiskTier(tmp_path / "cache", 4096) if request.param == "disk" else RamTier(4096)


def test_a_stored_block_is_found(tier):
    tier.put(OBJECT, BLOCKS[0], DATA)
    assert tier.load(OBJECT, BLOCKS[0]).tobytes() == DATA
    assert tier.get_from_memory(BLOCKS[0]).tobytes() == DATA
    assert tier.contains(OBJECT, BLOCKS[0])


def test_a_block_that_was_not_stored_is_not_found(tier):
    assert tier.load(OBJECT, BLOCKS[0]) is None
    assert not tier.contains(OBJECT, BLOCKS[0])


def test_a_full_tier_takes_no_block_and_evicts_none(tier):
    assert [tier.put(OBJECT, block, DATA) is not None for block in BLOCKS[:6]] == [True] * 4 + [False] * 2
    assert [tier.contains(OBJECT, block) for block in BLOCKS[:6]] == [True] * 4 + [False] * 2
    assert tier.free_nbytes < 1000


def test_a_tier_explains_how_many_bytes_it_has_cached(tier):
    tier.put(OBJECT, BLOCKS[0], DATA)
    (decision,) = tier.decisions()
    assert decision.choice.endswith("cached")


def test_a_new_tier_finds_the_blocks_on_disk(tmp_path):
    DiskTier(tmp_path, 4096).put(OBJECT, BLOCKS[0], DATA)
    again = DiskTier(tmp_path, 4096)
    assert again.contains(OBJECT, BLOCKS[0])
    assert again.load(OBJECT, BLOCKS[0]).tobytes() == DATA


def test_another_version_of_an_object_is_not_found(tmp_path):
    tier = DiskTier(tmp_path, 4096)
    tier.put(OBJECT, BLOCKS[0], DATA)
    assert tier.load(StoredObject(OBJECT.url, OBJECT.path, 10_000, '"2"'), BLOCKS[0]) is None


def test_an_object_without_a_version_is_not_cached_on_disk(tmp_path):
    assert DiskTier(tmp_path, 4096).put(StoredObject(OBJECT.url, OBJECT.path, 10_000, ""), BLOCKS[0], DATA) is None


@pytest.mark.parametrize("damage", [b"", b"short", DATA + b"\0\0\0\0"])
def test_a_damaged_block_is_deleted_and_cached_again(tmp_path, caplog, damage):
    DiskTier(tmp_path, 4096).put(OBJECT, BLOCKS[0], DATA)
    (file,) = tmp_path.glob("*.block")
    file.write_bytes(damage)
    tier = DiskTier(tmp_path, 4096)
    assert tier.load(OBJECT, BLOCKS[0]) is None
    assert tier.put(OBJECT, BLOCKS[0], DATA).tobytes() == DATA


def test_old_temporary_files_are_deleted(tmp_path):
    old, new = tmp_path / "a.block.1.2.part", tmp_path / "b.block.1.2.part"
    old.write_bytes(DATA)
    new.write_bytes(DATA)
    os.utime(old, (0, 0))
    assert DiskTier(tmp_path, 4096).free_nbytes == 4096 - 1000
    assert not old.exists()


def test_a_tier_stores_nothing_if_its_folder_cannot_be_created(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    tier = DiskTier(tmp_path / "file", 4096)
    assert tier.put(OBJECT, BLOCKS[0], DATA) is None
    assert "the disk cache stores nothing more; reading continues" in caplog.text
    assert tier.decisions()[0].choice == "read-only"


def test_a_tier_stores_no_more_blocks_on_a_full_disk(tmp_path, caplog, monkeypatch):
    tier = DiskTier(tmp_path, 4096)
    monkeypatch.setattr(UnpublishedFile, "write", _full_disk)
    with caplog.at_level(logging.WARNING):
        assert tier.put(OBJECT, BLOCKS[0], DATA) is None
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.glob("*.part"))
    assert tier.free_nbytes == 0


def _full_disk(_, data):
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - a device
        full.write(data)


def test_a_block_that_two_tiers_store_is_counted_once(tmp_path):
    one, two = DiskTier(tmp_path, 4096), DiskTier(tmp_path, 4096)
    assert one.put(OBJECT, BLOCKS[0], DATA).tobytes() == DATA
    assert two.put(OBJECT, BLOCKS[0], DATA).tobytes() == DATA
    assert two.free_nbytes == 4096 - 1004
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.slow
def test_processes_share_one_budget(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=put_all, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sum(file.stat().st_size for file in tmp_path.glob("*.block")) == 5 * 1004
    assert DiskTier(tmp_path, 6000).free_nbytes == 6000 - 5 * 1004


def put_all(folder, number):
    tier = DiskTier(folder, 6000)
    stored = StoredObject(f"s3://bucket/{number}.npy", "", 10_000, '"1"')
    cached = [tier.put(stored, block, DATA) for block in BLOCKS]
    assert all(block is None or np.array_equal(block, np.frombuffer(DATA, np.uint8)) for block in cached)
