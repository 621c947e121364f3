"""A cache on disk stores no row under the key of other functions."""

import numpy as np
import PIL
import pytest
from PIL import Image
from tests.pipeline.row_pipelines import TEN
from tests.support.received import rows_of

import forebay as fb
from forebay.errors import PipelineError
from forebay.pipeline import cache_key
from forebay.sources.row_cache import key_checks


def make_scale(config):
    def scale(row):
        return row * config["k"]

    return scale


def test_a_variable_that_changes_after_cache_is_an_error_that_names_the_function(tmp_path):
    config = {"k": 1}
    pipeline = TEN.map(make_scale(config)).cache(tmp_path).batch(5)
    config["k"] = 5
    with pipeline.feed("numpy") as feed, pytest.raises(PipelineError, match=r"map\(.*scale.*\) changed after the call"):
        next(feed)
    config["k"] = 1
    with TEN.map(make_scale(config)).cache(tmp_path).batch(10).feed("numpy") as feed:
        assert rows_of(feed) == list(range(10))


def test_rows_that_a_function_computes_while_it_changes_are_not_stored(tmp_path):
    config = {"k": 1}

    def scale(row):
        config["k"] = int(row) // 5 + 1
        return row * config["k"]

    with (
        TEN.map(scale).cache(tmp_path).batch(5).feed("numpy") as feed,
        pytest.raises(PipelineError, match="changed after the call of cache"),
    ):
        rows_of(feed)
    config["k"] = 1
    assert not TEN.map(scale).cache(tmp_path).source._store.find(np.arange(5, 10)).any()


def test_a_version_stands_for_a_function_that_changes(tmp_path):
    config = {"k": 1}
    pipeline = TEN.map(make_scale(config)).cache(tmp_path, version="1").batch(10)
    config["k"] = 2
    with pipeline.feed("numpy") as feed:
        assert rows_of(feed) == list(range(0, 20, 2))


def test_arrays_that_change_after_cache_are_an_error(tmp_path):
    array = np.arange(10)
    pipeline = fb.from_arrays(array).cache(tmp_path).batch(10)
    array[:] = 7
    with pipeline.feed("numpy") as feed, pytest.raises(PipelineError, match=r"the data before cache\(\) changed after"):
        next(feed)


@pytest.mark.parametrize("open_images", [fb.from_images, fb.from_files])
@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "auto"])
def test_another_version_of_a_decoder_library_gets_another_key(tmp_path, monkeypatch, open_images, decoder):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    pipeline, folder = open_images(tmp_path / "a.jpg", decoder=decoder), tmp_path / "cache"
    pipeline.cache(folder)
    monkeypatch.setattr(PIL, "__version__", "0.0")
    pipeline.cache(folder)
    assert len(list(folder.glob("*.json"))) == 2


def test_the_versions_of_libraries_that_decode_no_image_are_not_part_of_the_key(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.arange(4))
    pipeline, folder = fb.from_files(tmp_path / "a.npy"), tmp_path / "cache"
    pipeline.cache(folder)
    monkeypatch.setattr(PIL, "__version__", "0.0")
    pipeline.cache(folder)
    assert len(list(folder.glob("*.json"))) == 1


def test_a_function_that_takes_long_to_hash_is_compared_rarely_but_before_the_last_rows(tmp_path, monkeypatch):
    table, digests = np.arange(10), []
    monkeypatch.setattr(key_checks, "CHEAP_CHECK_SECONDS", -1.0)
    monkeypatch.setattr(key_checks, "MAX_CHECK_SHARE", 1e-9)
    compute = cache_key._digest_again
    monkeypatch.setattr(cache_key, "_digest_again", lambda transform: digests.append(transform) or compute(transform))
    with TEN.map(lambda row: row + table[0]).cache(tmp_path).batch(1).feed("numpy") as feed:
        assert rows_of(feed) == list(range(10))
    assert len(digests) == 2  # before the first row is stored, and before the last row


def test_a_variable_that_the_first_call_sets_is_no_change(tmp_path):
    config = {}

    def scale(row):
        config["k"] = 1
        return row * config["k"]

    pipeline = TEN.map(scale).cache(tmp_path).batch(5)
    config.clear()  # as in another process, which has not called the function
    with pipeline.feed("numpy") as feed:
        assert rows_of(feed) == list(range(10))
