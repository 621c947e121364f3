"""Combined pipelines of stored objects and compressed files: each part prefetches its own rows."""

import numpy as np
import pytest
from tests.sources.objects.http_rows import ROWS

import forebay as fb
from forebay.sources.objects import objects_source

COMBINATIONS = {
    "concat": lambda first, second: fb.concat(first, second),
    "concat, shuffled": lambda first, second: fb.concat(first, second).shuffle(seed=1),
    "interleave": lambda first, second: fb.interleave(first.shuffle(seed=1), second, weights=(3, 1), stop="all"),
}


@pytest.fixture
def found(monkeypatch):
    """Record for each gather whether its rows were prefetched."""
    found = []

    def take(*arguments):
        group = take_prefetched(*arguments)
        found.append(group is not None)
        return group

    take_prefetched = objects_source.take_prefetched
    monkeypatch.setattr(objects_source, "take_prefetched", take)
    return found


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_stored_objects_find_their_prefetched_rows(server, found, combination):
    stored, local = fb.from_files(server.url + "/a.npy"), fb.from_arrays(ROWS[:777] + 1)
    pipeline = COMBINATIONS[combination](stored, local)
    expected = COMBINATIONS[combination](fb.from_arrays(ROWS), local)
    with pipeline.batch(64).feed("numpy") as feed, expected.batch(64).feed("numpy") as model:
        for batch, rows in zip(feed, model, strict=True):
            assert np.array_equal(batch, rows)
        assert feed.stats()["source"]
        assert "2 sources" in feed.explain()
    assert found
    assert all(found)


@pytest.mark.usefixtures("patient")
def test_windows_of_a_stored_object_find_their_prefetched_rows(server, found):
    windows = fb.from_files(server.url + "/a.npy").window(5, stride=3).shuffle(seed=1)
    expected = fb.from_arrays(ROWS).window(5, stride=3).shuffle(seed=1)
    with windows.batch(64).feed("numpy") as feed, expected.batch(64).feed("numpy") as model:
        assert all(np.array_equal(batch, rows) for batch, rows in zip(feed, model, strict=True))
        found_in_epoch = [*found]  # closing the feed ends the prefetch of the next epoch
    assert found_in_epoch
    assert all(found_in_epoch)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_compressed_files_are_decompressed_for_combined_rows(tmp_path, combination):
    for name in "ab":
        for number in range(4):
            np.savez_compressed(tmp_path / f"{name}{number}.npz", x=ROWS[number * 100 : number * 100 + 100])
    files = [fb.from_files(str(tmp_path / f"{name}*.npz")) for name in "ab"]
    arrays = [fb.from_arrays({"x": ROWS[:400]}) for _ in "ab"]
    pipeline, expected = (COMBINATIONS[combination](*pipelines).batch(32) for pipelines in (files, arrays))
    with pipeline.feed("numpy") as feed, expected.feed("numpy") as model:
        for _ in range(2):
            assert all(np.array_equal(batch["x"], rows["x"]) for batch, rows in zip(feed, model, strict=True))
