"""The bench cases of image files: their files, contenders and uncounted first batches."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from forebay.measure.bench.contenders import CONTENDERS, load_contender
from forebay.measure.bench.data import write_file
from forebay.measure.bench.meters import RunSettings, throughput
from forebay.measure.bench.model import Workload

ROWS, SHAPE, BATCH = 12, (100, 120, 3), 5


@pytest.fixture
def work(tmp_path):
    path = write_file(Workload(ROWS, SHAPE, BATCH), "jpegs", tmp_path)
    return Workload(ROWS, SHAPE, BATCH, dtype="uint8", path=str(path), options={"source": "image_folder"})


def test_the_files_are_photos_of_about_55_kb_in_ten_folders(work, tmp_path):
    files = list((tmp_path / "jpegs").glob("*/*.jpg"))
    assert len(files) == ROWS
    assert len({file.parent for file in files}) == 10
    assert 45_000 < np.mean([file.stat().st_size for file in files]) < 65_000
    with Image.open(files[0]) as image:
        assert image.size == (500, 375)


@pytest.mark.slow
def test_forebay_and_plain_threads_make_the_same_rows(work):
    by_threads = [(images.copy(), labels) for images, labels in start("images_threads", work)]
    by_feed = [(batch["image"].copy(), batch["label"].copy()) for batch in start("images_forebay", work)]
    assert sorted(rows(by_threads)) == sorted(rows(by_feed))


@pytest.mark.slow
def test_grain_decodes_every_file_once_with_its_label(work):
    found = [label for _, labels in start("images_grain", work) for label in labels.tolist()]
    assert sorted(found) == sorted(row % 10 for row in range(ROWS))


@pytest.fixture
def shards(tmp_path):
    work = Workload(ROWS, SHAPE, BATCH, dtype="uint8", options={"source": "image_shards"})
    return replace(work, path=str(write_file(work, "image_shards", tmp_path)))


@pytest.mark.slow
def test_forebay_and_webdataset_read_every_image_of_the_shards_with_its_label(shards):
    by_feed = [label for batch in start("images_forebay", shards) for label in batch["label"].tolist()]
    batches = [(images.shape[1:], labels.tolist()) for images, labels in start("images_webdataset", shards)]
    by_webdataset = [label for _, labels in batches for label in labels]
    assert sorted(by_feed) == sorted(by_webdataset) == sorted(row % 10 for row in range(ROWS))
    assert {tuple(shape) for shape, _ in batches} == {SHAPE}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"source": "decoded_images"},
        {"source": "cached_images", "cache": "ram"},
        {"source": "cached_images", "cache": "disk"},
    ],
)
def test_cached_images_are_the_images_of_the_folder(work, options):
    cached = start("images_forebay", replace(work, options=options))
    found, expected = (
        [(batch["image"].copy(), batch["label"].copy()) for batch in feed]
        for feed in (cached, start("images_forebay", work))
    )
    assert sorted(rows(found)) == sorted(rows(expected))


@pytest.mark.slow
def test_drained_batches_are_taken_before_the_time_begins():
    epochs = []

    def contender(work):
        return lambda: epochs.append(iter(range(100))) or epochs[-1]

    options = {"drained_batches": 7, "time_factor": 2.0}
    sampler = throughput.prepare(contender, Workload(100, (1,), 1, options=options), RunSettings(0.0, 0.0, 1))
    sampler.sample()
    assert [next(epoch) for epoch in epochs] == [8, 8]  # without time, a sample takes one more batch


def start(name, work):
    return load_contender(CONTENDERS[name].location)(work)()


def rows(batches):
    """Return label and pixels of every row."""
    return [
        (int(label), image.tobytes()) for images, labels in batches for image, label in zip(images, labels, strict=True)
    ]
