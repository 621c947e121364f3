"""`from_images(on_error="skip")`: the nearest good row of its batch replaces a damaged image."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.pipeline.damaged_folders import (
    BAD,
    ROWS,
    brighten,
    files_of,
    identity,
    in_order,
    make_folder,
    open_images,
    replace_bad_rows,
    row_numbers_of,
)
from tests.sources.formats.image_container_files import FORMATS, each_format, encode, labels_of, make_images

import forebay as fb
from forebay.errors import SourceError
from forebay.testing import SimulatedEngine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("images"))


@given(batch=st.integers(6, 20), seed=st.integers(0, 50), shards=st.integers(1, 2), steps=st.integers(0, 1))
def test_batches_have_replaced_rows_after_a_resume_and_on_every_shard(folder, batch, seed, shards, steps):
    for index in range(shards):
        pipeline = open_images(folder).shuffle(seed=seed).shard(index, shards).batch(batch, drop_remainder=True)
        plain = fb.from_arrays(np.arange(ROWS)).shuffle(seed=seed).shard(index, shards)
        expected = [replace_bad_rows(rows.tolist()) for rows in plain.batch(batch, drop_remainder=True).feed("numpy")]
        with pipeline.feed("numpy") as feed, pipeline.feed("numpy") as other:
            first = [next(feed)["label"].tolist() for _ in range(steps)]
            other.load_state_dict(json.loads(json.dumps(feed.state_dict())))
            assert first + row_numbers_of(other) == expected


@pytest.mark.slow
@pytest.mark.parametrize("where", ["thread", "process"])
def test_maps_receive_replaced_rows_and_the_report_names_the_files(folder, where):
    with open_images(folder).map(identity, where=where).batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8)
        stats, text = feed.stats()["skipped_rows"], feed.explain()
    assert (stats["count"], stats["received_rows"]) == (5, 40)
    assert [first["row"] for first in stats["first"]] == sorted(BAD)
    for first in stats["first"]:
        assert first["map"] == "from_images"
        assert first["name"] == str(files_of(folder)[first["row"]])
        assert first["error"].startswith("SourceError: cannot be decoded: its content is damaged")
    assert re.search(r"skipped: 5 of 40 rows, first row 0 \(.*00\.png\) in from_images: SourceError", text)
    assert re.search(r"unreadable rows +skipped +other rows of the batch replace them, up to 100 % of all rows", text)


def refuse(row):
    if row["label"] in (1, 30):
        raise ValueError("refused")
    return row


def test_rows_that_a_map_skips_are_counted_beside_the_damaged_images(folder):
    with open_images(folder).map(refuse, on_error="skip", max_errors=1).batch(8).feed("numpy") as feed:
        rows = row_numbers_of(feed)
        stats = feed.stats()["skipped_rows"]
    assert rows[0] == [2, 2, 2, 3, 4, 4, 7, 7]  # row 1 replaced row 0, and the map has failed for both
    assert rows[3] == [24, 25, 26, 27, 28, 29, 29, 31]
    assert stats["count"] == 8
    assert [first["map"] for first in stats["first"]] == ["from_images"] * 5 + ["map(refuse, rows)"] * 3


def test_a_device_receives_replaced_rows(folder):
    engine = SimulatedEngine(bytes_per_second=1e9, latency_seconds=1e-6)
    with open_images(folder).batch(8).feed("numpy", device=engine) as feed:
        assert row_numbers_of(feed) == in_order(8)


def test_transforms_of_forebay_receive_replaced_rows(folder):
    with open_images(folder).map(fb.cast({"label": "int32"})).batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8)


def test_padded_batches_have_replaced_rows(folder):
    with open_images(folder).batch(8, pad=0).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8)
    with open_images(folder).map(brighten).batch(8, pad=0).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8)
        assert feed.stats()["skipped_rows"]["count"] == 5


@each_format
def test_images_inside_other_files_are_replaced(tmp_path, name):
    suffix, writer, column, label = FORMATS[name][:4]
    images = make_images()
    encoded = [encode(image) for image in images]
    encoded[3] = encoded[3][:20].ljust(len(encoded[3]), b"\0")
    path = tmp_path / f"images{suffix}"
    writer(path, encoded, labels_of())
    pipeline = fb.from_images(path, column=column, label=label, on_error="skip").batch(6)
    with pipeline.feed("numpy") as feed:
        batches = [{name: np.array(leaf) for name, leaf in batch.items()} for batch in feed]
        first = feed.stats()["skipped_rows"]["first"]
    kept = [0, 1, 2, 2, *range(4, len(images))]
    assert (np.concatenate([batch["image"] for batch in batches]) == images[kept]).all()
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == [labels_of()[row] for row in kept]
    assert [row["row"] for row in first] == [3]
    assert path.name in first[0]["name"]


def test_missing_images_of_a_parquet_file_are_replaced(tmp_path):
    encoded = [None, *map(encode, make_images()[:4]), None]
    pq.write_table(pa.table({"image": encoded, "label": range(6)}), tmp_path / "a.parquet")
    pipeline = fb.from_images(tmp_path / "a.parquet", label="label", on_error="skip", max_errors=0.002).batch(6)
    with pipeline.feed("numpy") as feed:
        assert next(feed)["label"].tolist() == [1, 1, 2, 3, 4, 4]
        assert "is null" in feed.stats()["skipped_rows"]["first"][0]["error"]


# Caches and combined pipelines


@pytest.mark.parametrize("mapped", [identity, brighten, None])
@pytest.mark.parametrize("place", ["1MB", "folder", "small"])
def test_a_cache_stores_the_good_rows_only(folder, tmp_path, mapped, place):
    pipeline = open_images(folder) if mapped is None else open_images(folder).map(mapped)
    where = {"1MB": "1MB", "folder": tmp_path / "cache", "small": "1kB"}[place]  # 10 rows fit into 1 kB
    pipeline = pipeline.cache(where)
    for _ in range(2):
        with pipeline.batch(8).feed("numpy") as feed:
            assert [row_numbers_of(feed), row_numbers_of(feed)] == [in_order(8), in_order(8)]
            assert feed.stats()["skipped_rows"]["count"] == 10
            assert feed.stats()["source"]["cached_rows"] <= 35
    with pipeline.shuffle(seed=1).batch(8).feed("numpy") as feed:
        order = [rows.tolist() for rows in fb.from_arrays(np.arange(ROWS)).shuffle(seed=1).batch(8).feed("numpy")]
        assert row_numbers_of(feed) == [replace_bad_rows(rows) for rows in order]


def test_explain_says_why_a_cache_stays_incomplete(folder):
    with open_images(folder).cache("1MB").batch(8).feed("numpy") as feed:
        row_numbers_of(feed)
        text = feed.explain()
    assert re.search(r"cache +35 of 40 rows .* 5 rows could not be read, and are tried again in every epoch", text)


def test_an_image_that_was_corrected_completes_the_cache(tmp_path):
    folder = make_folder(tmp_path, bad={4})
    pipeline = open_images(folder).cache("1MB").batch(8)
    with pipeline.feed("numpy") as feed:
        assert row_numbers_of(feed)[0] == [0, 1, 2, 3, 3, 5, 6, 7]
        Image.new("RGB", (6, 5), (4, 4, 4)).save(files_of(folder)[4])
        assert row_numbers_of(feed)[0] == list(range(8))
        assert row_numbers_of(feed)[0] == list(range(8))
        assert "complete: new epochs" in feed.explain()


def test_the_rows_of_joined_and_mixed_pipelines_are_replaced(folder):
    numbers = np.arange(100, 120)
    other = fb.from_arrays({"image": np.tile(numbers[:, None, None, None].astype("u1"), (5, 6, 3)), "label": numbers})
    with fb.concat(open_images(folder), other).batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed)[:5] == in_order(8)
    with fb.interleave(other, open_images(folder)).batch(8).feed("numpy") as feed:
        mixed = fb.interleave(fb.from_arrays(numbers), fb.from_arrays(np.arange(ROWS))).batch(8).feed("numpy")
        assert row_numbers_of(feed) == [replace_bad_rows(batch.tolist()) for batch in mixed]
        assert [first["row"] for first in feed.stats()["skipped_rows"]["first"]] == [20, 25, 26, 37]
    nested = fb.concat(fb.concat(other.take(8), open_images(folder)), open_images(folder, max_errors=0.5))
    with nested.batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed)[1:] == in_order(8) * 2
        assert "up to 100 % of all rows" in feed.explain()


def test_all_fields_of_zipped_rows_are_replaced(folder):
    number = fb.from_arrays({"number": np.arange(ROWS)})
    with fb.zip_rows(open_images(folder), number).batch(8).feed("numpy") as feed:
        assert [batch["number"].tolist() for batch in feed] == in_order(8)


def test_labels_can_be_read_although_images_are_damaged(folder):
    half = open_images(folder).filter(lambda label: label < 8, fields="label")
    with half.batch(8).feed("numpy") as feed:
        assert row_numbers_of(feed) == in_order(8, rows=8)
    both = fb.concat(half, open_images(folder)).sample(balance="label", rows=16)
    with both.batch(16).feed("numpy") as feed:
        assert len(row_numbers_of(feed)[0]) == 16
    zipped = fb.zip_rows(open_images(folder), fb.from_arrays({"number": np.arange(ROWS)}))
    assert len(zipped.filter(lambda columns: columns["number"] <= columns["label"], fields=["number", "label"])) == ROWS


def test_the_error_of_a_filter_that_reads_a_damaged_image_names_the_image(folder):
    with pytest.raises(SourceError, match=r"00\.png: SourceError: cannot be decoded.*replaces rows of batches only"):
        open_images(folder).filter(lambda image: image[:, 0, 0, 0] > 3, fields="image")
