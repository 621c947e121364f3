"""`from_images(on_error="skip")`: limits, the first images, errors that are not skipped, and refusals."""

import logging
import re

import numpy as np
import pytest
from PIL import Image
from tests.pipeline.damaged_folders import (
    ROWS,
    brighten,
    files_of,
    identity,
    in_order,
    make_folder,
    open_images,
    row_numbers_of,
)

import forebay as fb
from forebay.errors import PipelineError, SourceError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("images"))


# Limits


def test_a_batch_without_a_good_row_raises_and_the_state_is_before_it(folder):
    with open_images(folder).skip(1).batch(2).feed("numpy") as feed:
        assert [next(feed)["label"].tolist() for _ in range(2)] == [[1, 2], [3, 4]]
        with pytest.raises(SourceError, match=r"no readable row among the 2 rows of a batch.*05\.png: SourceError"):
            next(feed)
        assert feed.state_dict()["position"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_batches_before_a_batch_without_a_good_row_are_delivered_from_the_same_group(tmp_path, where):
    folder = make_folder(tmp_path, bad={1, 36, 37})
    pipeline = open_images(folder).map(fb.cast({"label": "int32"}))
    pipeline = pipeline.map(identity, where=where) if where == "process" else pipeline
    with pipeline.repeat(50).batch(2).feed("numpy") as feed:
        assert feed.plan.group_batches > 1
        found = []
        with pytest.raises(SourceError, match=r"no readable row among the 2 rows.*36\.png"):
            found += (batch["label"].tolist() for batch in feed)
        assert feed.state_dict()["position"] == 36
        assert feed.stats()["skipped_rows"]["count"] == 1


def test_more_damaged_images_than_max_errors_raise_with_the_count_and_the_first_name(folder):
    with open_images(folder, max_errors=0.003).map(identity).batch(8).feed("numpy") as feed:
        next(feed)
        next(feed)
        message = r"from_images failed for 4 of 24 rows.*max_errors=0\.003.*row 0 \(.*00\.png\): SourceError"
        with pytest.raises(SourceError, match=message):
            next(feed)
        assert feed.state_dict()["position"] == 16


def test_without_max_errors_one_of_the_first_thousand_rows_may_be_damaged(folder):
    with open_images(folder, max_errors=None).map(identity).batch(5).feed("numpy") as feed:
        next(feed)
        with pytest.raises(SourceError, match=r"failed for 3 of 10 rows, more than max_errors=0\.001"):
            next(feed)


def test_the_kind_of_error_is_logged_once_with_the_name(folder, caplog):
    with caplog.at_level(logging.WARNING), open_images(folder).batch(8).feed("numpy") as feed:
        row_numbers_of(feed)
    assert len(caplog.records) == 1
    assert re.match(r"from_images skipped row 0 \(.*00\.png\): SourceError", caplog.records[0].getMessage())


# The first images


def test_the_first_image_that_can_be_read_determines_the_size(folder):
    with open_images(folder, size=None).batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8)


def test_images_of_another_size_are_replaced(tmp_path):
    folder = make_folder(tmp_path, bad=())
    Image.new("RGB", (7, 5)).save(files_of(folder)[3])
    with open_images(folder, size=None).batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed)[0] == [0, 1, 2, 2, 4, 5, 6, 7]
        assert "is 5 x 7" in feed.stats()["skipped_rows"]["first"][0]["error"]


def test_only_damaged_images_are_refused_when_the_pipeline_is_made(tmp_path):
    folder = make_folder(tmp_path, bad=range(ROWS))
    with pytest.raises(SourceError, match=r"none of the first 40 images can be decoded.*The first error: .*00\.png"):
        open_images(folder)


def test_the_rows_from_which_specs_are_inferred_may_be_damaged(tmp_path):
    folder = make_folder(tmp_path, bad=range(8))
    with open_images(folder).map(brighten).skip(0).shuffle(seed=0).batch(20).feed("numpy") as feed:
        row_numbers_of(feed)
    cached = open_images(folder).map(brighten).cache("1MB")
    with cached.batch(16).feed("numpy") as feed:
        assert row_numbers_of(feed)[0] == [8] * 8 + list(range(8, 16))


# What is not skipped


def test_a_file_that_disappears_is_not_skipped(tmp_path):
    folder = make_folder(tmp_path, bad=())
    pipeline = open_images(folder).batch(8)
    files_of(folder)[3].unlink()
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match=r"03\.png is missing now"):
        next(feed)


def test_too_little_memory_is_not_skipped(folder, monkeypatch):
    def load(image):
        raise MemoryError

    pipeline = open_images(folder).batch(8)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match="cannot be decoded") as caught:
        next(feed)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_without_on_error_a_damaged_image_ends_the_feed(folder):
    pipeline = fb.from_images(files_of(folder)[1:], size=(5, 6)).batch(8)
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match=r"05\.png cannot be decoded"):
        next(feed)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, r"from_images\(on_error='ignore'\) is unknown. Choose 'raise' or 'skip'"),
        ({"max_errors": 0.1}, r"from_images\(max_errors=0.1\) needs on_error='skip'"),
        ({"on_error": "skip", "max_errors": 2}, r"from_images\(max_errors=2\): pass a share of all rows from 0 to 1"),
    ],
)
def test_wrong_options_are_refused(folder, options, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_images(files_of(folder), size=(5, 6), **options)


def test_rows_that_consist_of_several_rows_are_refused(folder):
    with pytest.raises(PipelineError, match=r"window\(\) makes each row of several rows.*on_error='skip'"):
        open_images(folder).window(3)
    texts = fb.from_ragged(np.arange(ROWS), np.arange(ROWS + 1))
    with pytest.raises(PipelineError, match=r"pack\(\) makes each row of several rows"):
        fb.zip_rows(fb.from_images(files_of(folder), size=(5, 6), on_error="skip"), make_named_texts(texts)).pack(
            8, drop="image"
        )


def make_named_texts(texts):
    return fb.from_ragged({"text": np.arange(ROWS)}, np.arange(len(texts) + 1))


def test_padded_fields_beside_images_are_refused(folder):
    texts = make_named_texts(fb.from_arrays(np.arange(ROWS)))
    both = fb.zip_rows(fb.from_images(files_of(folder), size=(5, 6), on_error="skip"), texts)
    with pytest.raises(PipelineError, match="replaces rows of one shape, but other fields may differ in length"):
        both.batch(8, pad=0).feed("numpy")
