"""Images that neither the device nor the host can decode.

Other images of the batch replace them on the device.
"""

import re

import numpy as np
import pytest
from tests.engines.cuda.decode.test_image_filler import (
    SIZE,
    SIZES,
    decode_all,
    feed_of,
    framework,
    open_images,
    save_images,
)
from tests.engines.cuda.pull.host_comparison import read_all

import forebay as fb
from forebay.errors import SourceError

__all__ = ["framework"]


def damage(paths, numbers):
    for number in numbers:
        paths[number].write_bytes(paths[number].read_bytes()[:40])


def open_skipping(folder, max_errors=1.0, **options):
    return open_images(folder, label="folder", on_error="skip", max_errors=max_errors, **options)


def open_with_any_decoder(folder):
    files = folder / "*" / "*.jpg"
    return fb.from_images(files, size=SIZE, label=lambda path: int(path.stem), on_error="skip", max_errors=1)


def test_the_nearest_good_image_of_the_batch_and_its_label_replace_a_damaged_image(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    expected, _, _ = decode_all(open_images(tmp_path, label="folder").batch(4), framework)
    damage(paths, [0, 2, 7])
    found, stats, feed = decode_all(open_skipping(tmp_path).batch(4), framework)
    kept = [1, 1, 1, 3, 4, 5, 6, 6, 8]
    assert np.array_equal(found["image"], expected["image"][kept])
    assert np.array_equal(found["label"], expected["label"][kept])
    assert (stats["skipped_rows"]["count"], stats["skipped_rows"]["received_rows"]) == (3, 9)
    assert [row["row"] for row in stats["skipped_rows"]["first"]] == [0, 2, 7]
    assert stats["skipped_rows"]["first"][0]["name"] == str(paths[0])
    assert re.search(r"decoder +nvjpeg", feed.explain())


def test_an_image_that_only_the_host_decodes_may_replace_a_damaged_image(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    framework.nvjpeg.refuses.add(paths[1].read_bytes())
    expected, _, _ = decode_all(open_images(tmp_path).batch(4), framework)
    damage(paths, [0])
    found, stats, _ = decode_all(open_skipping(tmp_path).batch(4), framework)
    assert np.array_equal(found["image"], expected["image"][[1, *range(1, 9)]])
    assert stats["decoded_images"]["host"] * 7 == stats["decoded_images"]["device"]


def test_a_device_and_the_host_skip_the_same_rows_after_a_resume(tmp_path, framework):
    paths = save_images(tmp_path, [(30, 40)] * 23)
    damage(paths, [3, 4, 11])
    pipeline = open_with_any_decoder(tmp_path).shuffle(seed=3).batch(6)
    with pipeline.feed("numpy", device="cpu") as feed:
        labels = [batch["label"].tolist() for batch in feed]
        first = feed.stats()["skipped_rows"]["first"]
    with feed_of(pipeline, framework) as feed:
        batches = iter(feed)
        (begun,) = read_all(framework, [next(batches)])
        state = feed.state_dict()
    with feed_of(pipeline, framework) as feed:
        feed.load_state_dict(state)
        resumed = read_all(framework, feed)
        later = feed.stats()["skipped_rows"]["first"]
    assert [batch["label"].tolist() for batch in [begun, *resumed]] == labels
    assert {row["name"] for row in later} <= {row["name"] for row in first}


def test_a_batch_without_a_good_image_raises_after_the_batches_before_it(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    damage(paths, [4, 5])
    with feed_of(open_skipping(tmp_path).batch(2), framework) as feed:
        assert len(read_all(framework, [next(feed), next(feed)])) == 2
        with pytest.raises(SourceError, match="no readable row among the 2 rows of a batch"):
            next(feed)
        assert feed.state_dict()["position"] == 4


def test_more_damaged_images_than_max_errors_raise(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    damage(paths, [1, 2])
    with pytest.raises(SourceError, match=r"from_images failed for 2 of 4 rows, more than max_errors=0\.001"):
        decode_all(open_skipping(tmp_path, max_errors=None).batch(4), framework)
