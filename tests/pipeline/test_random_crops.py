"""`from_images(resize=fb.random_resized_crop(...))`: random boxes, equal on every path of a feed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import forebay as fb
from forebay.core.chunk_policy import ShuffleBlocks
from forebay.errors import PipelineError, SpecError, StateError
from forebay.order.combined import Concatenated, OrderPart
from forebay.order.epoch_views import EpochViews, find_source_row
from forebay.order.orders import Sequential, Take
from forebay.sources.formats.random_boxes import _GOLDEN_GAMMA, RandomBoxes, _mix_bits, _uniform
from forebay.testing import SimulatedEngine

ROWS, SIZE = 11, (36, 48)
DECODERS = ("pillow", "simplejpeg", "opencv")
CROP = fb.random_resized_crop(SIZE, scale=(0.2, 0.8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(ROWS):
        path = folder / ("ant", "bee", "cat")[number % 3] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture(90 + 7 * number, 130 - 5 * number)).save(path, quality=98, subsampling=0)
    return folder


def picture(height, width):
    """Return a smooth image. The colour of a pixel encodes its position."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 255 / height, x * 255 / width, np.full_like(y, 99)], axis=-1).astype(np.uint8)


def open_images(folder, **options):
    return fb.from_images(folder / "*" / "*", **({"resize": CROP, "label": "folder", "seed": 5} | options))


def epochs_of(pipeline, count=1, **options):
    """Return the images and labels of each epoch."""
    with pipeline.feed("numpy", **options) as feed:
        return [join_batches([copy_batch(batch) for batch in feed]) for _ in range(count)]


def copy_batch(batch):
    return {name: np.array(leaf) for name, leaf in batch.items()}


def join_batches(batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@given(
    st.integers(0, 2**62),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted),
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)).map(sorted),
)
def test_boxes_are_those_of_the_transform_for_the_same_random_numbers(row, height, width, scale, ratio):
    crop = fb.random_resized_crop(8, scale=tuple(scale), ratio=tuple(ratio))
    uniform = random_numbers(row, crop.uniform_count)[None]
    box = RandomBoxes(crop.scale, crop.ratio).draw(row, height, width)
    assert box == tuple(crop.parameters(uniform, (height, width, 3))[0].tolist())
    top, left, box_height, box_width = box
    assert 0 <= top <= top + box_height <= height
    assert 0 <= left <= left + box_width <= width


def test_random_numbers_of_rows_are_uniform_and_independent():
    numbers = np.array([random_numbers(row, 22) for row in range(2000)])
    assert np.abs(numbers.mean(axis=0) - 0.5).max() < 0.04
    correlations = np.corrcoef(numbers.T) - np.eye(22)
    assert np.abs(correlations).max() < 0.12
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.08


def random_numbers(row, count):
    key = _mix_bits(row * _GOLDEN_GAMMA)
    return np.array([_uniform(key, index) for index in range(count)])


SIDES = st.integers(1, 3000)


@given(
    st.lists(st.tuples(st.integers(0, 2**62), SIDES, SIDES), min_size=1, max_size=20),
    st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted),
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)).map(sorted),
)
def test_many_boxes_are_those_of_single_rows(images, scale, ratio):
    boxes = RandomBoxes(tuple(scale), tuple(ratio))
    drawn = np.stack(boxes.draw_many(*np.array(images).T), axis=1)
    assert drawn.tolist() == [[*boxes.draw(*image)] for image in images]


@pytest.mark.parametrize("decoder", DECODERS)
def test_pixels_are_those_of_the_box(folder, decoder):
    pipeline = open_images(folder, decoder=decoder)
    (epoch,) = epochs_of(pipeline.batch(ROWS))
    files = pipeline_files(folder)
    for row, (image, path) in enumerate(zip(epoch["image"], files, strict=True)):
        with Image.open(path) as opened:
            top, left, height, width = box_of(pipeline, row, opened.size[::-1])
            sides = (left, top, left + width, top + height)
            expected = np.asarray(opened.resize(SIZE[::-1], Image.Resampling.BILINEAR, sides)).astype(int)
        assert np.abs(image - expected).max() <= (0 if decoder == "pillow" else 12)
        assert np.abs(image - expected).mean() < 2


def pipeline_files(folder):
    return sorted(folder.glob("*/*"), key=lambda path: (path.parent.name, int(path.stem)))


def box_of(pipeline, row, size):
    number = int(pipeline.order.rows(0, np.array([row]))[0])
    return RandomBoxes(CROP.scale, CROP.ratio).draw(number, *size)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_box_is_drawn_on_the_upright_image(tmp_path, decoder, orientation):
    exif, turn = Image.Exif(), {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]
    exif[0x0112] = orientation
    upright = Image.fromarray(picture(90, 140))
    stored = upright if turn is None else upright.transpose(Image.Transpose(turn))
    stored.save(tmp_path / "1.jpg", quality=98, subsampling=0, exif=exif)
    pipeline = fb.from_images(tmp_path / "1.jpg", resize=CROP, decoder=decoder)
    (epoch,) = epochs_of(pipeline.batch(1))
    top, left, height, width = box_of(pipeline, 0, (90, 140))
    expected = upright.resize(SIZE[::-1], Image.Resampling.BILINEAR, (left, top, left + width, top + height))
    assert np.abs(epoch["image"][0] - np.asarray(expected).astype(int)).max() <= 14


def test_masks_keep_their_values_and_have_the_boxes_of_the_images(tmp_path):
    for number in range(4):
        for kind in ("image", "mask"):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(picture(80, 100 + number)).save(tmp_path / kind / f"{number}.png")
    crop = fb.random_resized_crop(SIZE)
    images = fb.from_images(tmp_path / "image" / "*.png", resize=crop, interpolation="nearest")
    masks = fb.from_images(tmp_path / "mask" / "*.png", resize=crop, interpolation="nearest").rename({"image": "mask"})
    (epoch,) = epochs_of(fb.zip_rows(images, masks).shuffle(seed=2).batch(4))
    assert np.array_equal(epoch["image"], epoch["mask"])
    assert set(np.unique(epoch["mask"][..., 2])) == {99}


def test_pipelines_with_other_boxes_cannot_be_zipped(folder):
    others = open_images(folder, seed=6).rename({"image": "b", "label": "c"}), fb.from_arrays({"b": np.arange(ROWS)})
    for other in others:
        for change in (lambda rows: rows, lambda rows: rows.take(4), lambda rows: rows.shuffle(seed=1)):
            with pytest.raises(
                PipelineError, match="crops only one of them at random, or crops them with different seeds"
            ):
                fb.zip_rows(change(open_images(folder)), change(other))


def test_each_epoch_and_each_pass_has_other_boxes_of_the_same_images(folder):
    first, second = epochs_of(open_images(folder).batch(4), 2)
    assert np.array_equal(first["label"], second["label"])
    assert (first["image"] != second["image"]).any(axis=(1, 2, 3)).all()
    (twice,) = epochs_of(open_images(folder).repeat(2).batch(ROWS))
    assert (twice["image"][:ROWS] != twice["image"][ROWS:]).any(axis=(1, 2, 3)).all()
    (other,) = epochs_of(open_images(folder, seed=6).batch(4))
    assert (first["image"] != other["image"]).any(axis=(1, 2, 3)).all()


@pytest.mark.slow
@given(st.integers(1, 20), st.integers(1, 4))
def test_rows_are_equal_for_every_batch_size_and_number_of_shards(folder, batch, shards):
    pipeline = open_images(folder).shuffle(seed=3)
    expected = epochs_of(pipeline.batch(ROWS), 2)
    parts = [epochs_of(pipeline.shard(index, shards).batch(batch), 2) for index in range(shards)]
    for epoch in range(2):
        for name in ("image", "label"):
            rows = np.empty_like(expected[epoch][name])
            for index, part in enumerate(parts):
                rows[index::shards] = part[epoch][name]
            assert np.array_equal(rows, expected[epoch][name])


def test_a_state_in_mid_epoch_resumes_with_the_same_boxes(folder):
    pipeline = open_images(folder).shuffle(seed=3).batch(3)
    expected = epochs_of(pipeline, 2)[1]["image"]
    with pipeline.feed("numpy") as feed:
        list(feed)
        next(iter(feed))
        state = feed.state_dict()
    with pipeline.feed("numpy") as feed:
        feed.load_state_dict(state)
        assert np.array_equal(join_batches([copy_batch(batch) for batch in feed])["image"], expected[3:])
    with open_images(folder, seed=6).shuffle(seed=3).batch(3).feed("numpy") as feed, pytest.raises(StateError):
        feed.load_state_dict(state)


@pytest.mark.slow
def test_worker_processes_and_a_simulated_device_receive_the_same_rows(folder):
    pipeline = open_images(folder).shuffle(seed=3).map(fb.flip(horizontal=0.5))
    expected = epochs_of(pipeline.batch(4), 2)
    on_device = epochs_of(pipeline.batch(4), 2, device=SimulatedEngine())
    in_process = epochs_of(pipeline.map(unchanged, where="process").batch(4), 2)
    for found in (on_device, in_process):
        assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(found, expected, strict=True))


def unchanged(row):
    return row


def test_chosen_rows_have_the_same_boxes_as_in_an_epoch_of_all_rows(folder):
    images = open_images(folder)
    (whole,) = epochs_of(images.batch(ROWS))
    for chosen, rows in (
        (images.select([7, 2, 9]), [7, 2, 9]),
        (images.skip(8), [8, 9, 10]),
        (images.filter(lambda row: row["label"] == 1, fields=["label"]), np.flatnonzero(whole["label"] == 1)),
    ):
        (epoch,) = epochs_of(chosen.batch(ROWS))
        assert np.array_equal(epoch["image"], whole["image"][rows])
        assert np.array_equal(epoch["label"], whole["label"][rows])


def test_images_with_random_boxes_can_be_balanced_and_interleaved(folder):
    images = open_images(folder)
    (balanced,) = epochs_of(images.sample(balance="label", rows=30).batch(30))
    assert set(balanced["label"].tolist()) == {0, 1, 2}
    plain = open_images(folder, resize="stretch", size=SIZE, seed=None)
    (mixed,) = epochs_of(fb.interleave(images, plain, stop="all").batch(2 * ROWS))
    (whole,), (still,) = epochs_of(images.batch(ROWS)), epochs_of(plain.batch(ROWS))
    assert sorted(map(bytes, mixed["image"])) == sorted(map(bytes, [*whole["image"], *still["image"]]))


def test_a_skipped_image_is_named_by_its_row(folder, tmp_path):
    for path in pipeline_files(folder)[:4]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "2.jpg").write_bytes(b"damaged")
    names = sorted(path.name for path in tmp_path.iterdir())
    pipeline = fb.from_images(tmp_path / "*.jpg", resize=CROP, on_error="skip", max_errors=1).batch(5)
    with pipeline.feed("numpy") as feed:
        batch = next(feed)
        skipped = feed.stats()["skipped_rows"]["first"][0]
    assert len(batch["image"]) == len(names)
    assert skipped["row"] < len(names)
    assert skipped["name"].endswith("2.jpg")


def test_an_error_names_rows_of_the_folder(tmp_path):
    (tmp_path / "1.jpg").write_bytes(pytest.importorskip("simplejpeg").encode_jpeg(picture(40, 50)))
    (tmp_path / "2.jpg").write_bytes(b"damaged")
    with (
        fb.from_images(tmp_path / "*.jpg", resize=CROP).batch(2).feed("numpy") as feed,
        pytest.raises(fb.ForebayError) as caught,
    ):
        next(feed)
    assert any("2 rows (0, 1)" in note for note in caught.value.__notes__)


def test_row_numbers_of_combined_images_are_those_of_the_rows():
    views = EpochViews(5, views=100, seed=0)
    inner = Concatenated.of([OrderPart(views, 0), OrderPart(Sequential(3), 500), OrderPart(Take(views, 4), 503)])
    order = Concatenated.of([OrderPart(inner, 0), OrderPart(views, 1003)])
    rows = order.rows(4, np.arange(17)).tolist()
    assert [find_source_row(order, row) for row in rows] == [*range(12), *range(13, 18)]


def test_errors_and_statistics_name_rows_of_combined_folders(folder):
    images = fb.concat(open_images(folder), open_images(folder)).skip(ROWS - 1)
    with images.map(refuse_bee, on_error="skip", max_errors=1).batch(6).feed("numpy") as feed:
        next(feed)
        assert [row["row"] for row in feed.stats()["skipped_rows"]["first"]] == [15]
    with pytest.raises(ZeroDivisionError) as caught:
        images.batch(2).map(lambda batch: 1 / 0).feed("numpy")
    assert any("(rows 10, 11)" in note for note in caught.value.__notes__)


def refuse_bee(row):
    assert row["label"] != 1
    return row


def test_combined_images_are_shuffled_in_the_blocks_of_their_files(folder):
    images = open_images(folder), open_images(folder, seed=6)
    for each in images:
        each.source.shuffle_blocks = ShuffleBlocks(4, 3)
    assert fb.concat(*images).shuffle().order.block_rows == 4
    assert images[0].shuffle().order.block_rows == 4


def test_cache_refuses_random_boxes(folder):
    for pipeline in (open_images(folder).shuffle(seed=1), fb.concat(open_images(folder), open_images(folder))):
        with pytest.raises(PipelineError, match="one random box of each image for all epochs"):
            pipeline.cache("1MB")


def test_explain_says_that_boxes_change_in_each_pass(folder):
    first, second = open_images(folder), open_images(folder, seed=6)
    changes = "each pass crops other random boxes of the images"
    with first.batch(4).feed("numpy") as feed:
        order = feed.plan.decisions[0]
        assert (order.choice, order.why) == ("natural", f"the order of the source; {changes} (seed 5)")
    for pipeline in (
        fb.concat(first, second).shuffle(),
        fb.interleave(first.shuffle(), second.sample(balance="label")),
    ):
        with pipeline.batch(4).feed("numpy") as feed:
            assert f"; {changes} (seeds 5, 6)" in feed.plan.decisions[0].why
    with open_images(folder, resize="stretch", size=SIZE, seed=None).batch(4).feed("numpy") as feed:
        assert changes not in feed.explain()


def test_windows_refuse_random_boxes(folder):
    with pytest.raises(PipelineError, match="Open the images with size= instead of resize="):
        open_images(folder).window(2)


def test_wrong_arguments_are_refused(folder):
    with pytest.raises(
        SpecError, match=r"from_images\(size=\(8, 8\)\) and resize=random_resized_crop.*Leave out size="
    ):
        open_images(folder, size=(8, 8))
    with pytest.raises(SpecError, match=r"resize= names \('photo',\). Leave out fields="):
        open_images(folder, resize=fb.random_resized_crop(8, fields="photo"))
    with pytest.raises(PipelineError, match=r"from_images\(seed=3\) selects the boxes.*\.shuffle\(seed=0\)"):
        open_images(folder, resize="stretch", size=SIZE, seed=3)
    with pytest.raises(PipelineError, match="from_images"):
        open_images(folder, seed="3")
    with pytest.raises(SpecError, match="short_side"):
        open_images(folder, short_side=20)


def test_a_device_computes_the_row_numbers_of_views():
    order = EpochViews(5, 1 << 30, seed=1)
    (step,) = order.device_steps(3)
    assert order.rows(3, np.arange(5)).tolist() == [position + step.offset for position in range(5)]
