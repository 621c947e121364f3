"""`rename` gives fields other names, and changes nothing else."""

import numpy as np
import pytest
from PIL import Image

import forebay as fb
from forebay.errors import PipelineError, SpecError

ROWS = fb.from_arrays({"image": np.arange(10), "label": np.arange(10) * 2})


def test_rename_changes_neither_values_nor_order():
    pipeline = ROWS.shuffle(seed=3)
    batch, renamed = (next(each.batch(10).feed("numpy")) for each in (pipeline, pipeline.rename({"image": "mask"})))
    assert list(renamed) == ["mask", "label"]
    assert renamed["mask"].tolist() == batch["image"].tolist()
    assert renamed["label"].tolist() == batch["label"].tolist()


def test_two_fields_may_exchange_their_names():
    batch = next(ROWS.rename({"image": "label", "label": "image"}).batch(3).feed("numpy"))
    assert {name: values.tolist() for name, values in batch.items()} == {"label": [0, 1, 2], "image": [0, 2, 4]}


def test_the_error_of_zip_rows_names_a_call_that_works():
    with pytest.raises(PipelineError, match=r"zip_rows\(first, second.rename\({'image': 'other_image'}\)\)\.$"):
        fb.zip_rows(ROWS, ROWS)
    zipped = fb.zip_rows(ROWS, ROWS.rename({"image": "other_image", "label": "other_label"}))
    assert list(next(zipped.batch(2).feed("numpy"))) == ["image", "label", "other_image", "other_label"]


def test_renamed_images_keep_their_classes(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "0.png")
    images = fb.from_images(tmp_path / "*" / "*.png", label="folder").rename({"image": "x", "label": "y"})
    assert images.class_names == ("ant", "bee")
    assert next(images.sample(balance="y", rows=4).batch(4).feed("numpy"))["x"].shape == (4, 4, 4, 3)


def test_no_new_name_gives_the_same_pipeline():
    assert ROWS.rename({}) is ROWS
    assert ROWS.rename({"image": "image"}) is ROWS


def test_a_device_may_decode_renamed_images(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "0.jpg")
    images = fb.from_images(tmp_path / "*.jpg", size=(4, 4)).rename({"image": "x"})
    decoded = images.source.for_device_decoder()
    assert decoded.encoded_images is not None
    assert decoded.structure.paths == ("x",)
    nearest = fb.from_images(tmp_path / "*.jpg", size=(4, 4), interpolation="nearest").rename({"image": "x"})
    assert "bilinear filter only" in nearest.source.why_no_device_decoder


def test_a_map_after_a_renamed_cache_draws_the_same_numbers():
    cached = ROWS.map(lambda row: {**row, "y": 1.0}).cache("1MB")
    batches = [
        next(pipeline.map(lambda row, rng: {"drawn": rng.random()}).batch(10).feed("numpy"))
        for pipeline in (cached, cached.rename({"image": "mask"}))
    ]
    assert batches[0]["drawn"].tolist() == batches[1]["drawn"].tolist()


def test_windows_of_renamed_arrays_share_memory_and_explain_names_one_source():
    windows = ROWS.rename({"image": "mask"}).window(4)
    assert windows.source.memory_extents()
    assert windows.structure.paths == ("mask", "label")
    assert ROWS.structure.paths == ("image", "label")
    with ROWS.rename({"image": "mask"}).batch(2).feed("numpy") as feed:
        assert "sources together" not in feed.explain()


REFUSED = {
    "an unknown field": (lambda: ROWS.rename({"picture": "mask"}), SpecError, "the fields are 'image', 'label'"),
    "a name twice": (lambda: ROWS.rename({"image": "label"}), SpecError, "Pass one text for each"),
    "no text": (lambda: ROWS.rename({"image": 3}), SpecError, "Pass one text for each"),
    "no dict of names": (lambda: ROWS.rename("mask"), SpecError, "a dict of names"),
    "rows that are no dicts": (lambda: fb.from_arrays((np.arange(3),)).rename({"0": "x"}), SpecError, "are dicts"),
    "after map": (lambda: ROWS.map(dict).rename({"image": "mask"}), PipelineError, "map"),
    "after batch": (lambda: ROWS.batch(2).rename({"image": "mask"}), PipelineError, "before batch"),
    "a stream": (
        lambda: fb.from_generator(lambda: iter([{"x": 1}])).rename({"x": "y"}),
        PipelineError,
        "Rename the fields in it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_renamed_is_refused(case):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()
