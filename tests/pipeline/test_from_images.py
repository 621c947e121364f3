"""`from_images`: labelled rows that are equal for every batch size, shard and resume."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import forebay as fb
from forebay.errors import ForebayError, SourceError, SpecError
from forebay.pipeline import explain
from forebay.testing import SimulatedEngine, SourceTests

CLASSES = ("ant", "bee", "cat")
ROWS = 13
DECODERS = ("pillow", "simplejpeg", "opencv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(ROWS):
        save(folder / CLASSES[number % 3] / f"{number}.{'png' if number % 5 == 0 else 'jpg'}", number)
    return folder


@pytest.mark.parametrize("decoder", DECODERS)
class TestSource(SourceTests):
    @pytest.fixture
    def made(self, tmp_path, decoder):
        for number in range(ROWS):
            save(tmp_path / CLASSES[number % 3] / f"{number}.jpg", number)
        pipeline = open_images(tmp_path, decoder=decoder)
        images = np.concatenate([single_image(path, decoder) for path in files(tmp_path)])
        labels = np.asarray([CLASSES.index(path.parent.name) for path in files(tmp_path)])
        return pipeline.source, {"image": images, "label": labels}


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@given(st.integers(1, 20), st.integers(1, 4))
def test_rows_are_equal_for_every_batch_size_and_number_of_shards(folder, decoder, batch, shards):
    pipeline = open_images(folder, decoder=decoder).shuffle(seed=3)
    expected = read_all(pipeline.batch(ROWS))
    parts = [read_all(pipeline.shard(index, shards).batch(batch)) for index in range(shards)]
    for leaf in ("image", "label"):
        joined = np.empty_like(expected[leaf])
        for index, part in enumerate(parts):
            joined[index::shards] = part[leaf]
        assert (joined == expected[leaf]).all()


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@given(st.integers(0, 3), st.integers(1, 3))
def test_a_state_in_mid_epoch_resumes_on_any_number_of_shards(folder, decoder, steps, shards):
    pipeline = open_images(folder, decoder=decoder).shuffle(seed=3)
    expected = read_all(pipeline.batch(ROWS))
    with pipeline.batch(3).feed("numpy") as feed:
        epoch = iter(feed)
        [next(epoch) for _ in range(steps)]
        state = feed.state_dict()
    for index in range(shards):
        with pipeline.shard(index, shards).batch(2).feed("numpy") as feed:
            feed.load_state_dict(state)
            rest = [batch["image"].copy() for batch in feed]
        right = expected["image"][3 * steps :][index::shards]
        assert (np.concatenate([*rest, right[:0]]) == right).all()


def test_a_device_receives_the_rows_of_the_host(folder):
    pipeline = open_images(folder).shuffle(seed=3).batch(5)
    with pipeline.feed("numpy", device=SimulatedEngine()) as feed:
        on_device = [np.array(batch["image"]) for batch in feed]
    assert (np.concatenate(on_device) == read_all(pipeline)["image"]).all()


def test_folders_are_classes(folder):
    pipeline = open_images(folder)
    assert pipeline.class_names == pipeline.shuffle(seed=0).batch(2).class_names == CLASSES
    labels = read_all(pipeline.batch(4))["label"]
    assert labels.tolist() == [CLASSES.index(path.parent.name) for path in files(folder)]


def test_class_names_select_folders_and_explain_says_how_many_images_are_left_out(folder):
    pipeline = open_images(folder, class_names=["cat", "ant"]).batch(4)
    with pipeline.feed("numpy") as feed:
        assert {label for batch in feed for label in batch["label"].tolist()} == {0, 1}
        assert "images left out" in feed.explain()
    assert pipeline.class_names == ("cat", "ant")


def test_without_a_label_rows_have_only_an_image(folder):
    pipeline = fb.from_images(folder / "*" / "*", size=(8, 9))
    assert pipeline.structure.paths == ("image",)
    assert pipeline.class_names == ()


def test_other_inputs_have_no_class_names():
    assert fb.from_arrays(np.arange(3)).class_names == ()


def test_explain_names_the_decoder_and_the_resize(folder):
    with open_images(folder).batch(4).feed("numpy") as feed:
        assert "simplejpeg" in feed.explain()
        assert "resizes them to 8 x 9 (OpenCV, linear)" in feed.explain()
    with open_images(folder, decoder="pillow", resize="crop").batch(4).feed("numpy") as feed:
        assert "resizes them to 8 x 9 (bilinear, antialiased), and crops them at the centre" in feed.explain()


def test_explain_calls_the_stage_of_the_source_read_and_decode(folder, monkeypatch):
    monkeypatch.setattr(explain, "MIN_BUSY_SECONDS", 0.0)
    arrays = fb.from_arrays({"image": np.zeros((8, 4, 4, 3), np.uint8)})
    for pipeline, name in ((open_images(folder), "read and decode"), (arrays, "gather")):
        with pipeline.batch(4).feed("numpy") as feed:
            assert len([*feed]) > 0
            assert f"{name} 0." in feed.explain()
            assert "gather" in feed.stats()["stages"]


def test_two_worker_threads_pass_groups_to_the_decoder_threads(folder):
    with open_images(folder).batch(4).feed("numpy") as feed:
        assert feed.plan.threads == 2
        assert "decoder threads" in feed.explain()


def test_stats_count_the_images_of_each_library(folder):
    with open_images(folder).take(ROWS).batch(ROWS).repeat(1).feed("numpy") as feed:
        list(feed)
        counts = feed.stats()["source"]
    assert counts["simplejpeg_images"] >= 10
    assert counts["pillow_images"] >= 3  # the PNG files


def test_from_files_decodes_with_pillow_unless_the_user_names_a_decoder(folder):
    paths = [path for path in files(folder) if path.suffix == ".jpg"]
    plain = read_all(fb.from_files(paths, size=(8, 9)).batch(20))
    pillow = read_all(fb.from_images(paths, size=(8, 9), decoder="pillow").batch(20))["image"]
    fast = read_all(fb.from_files(paths, size=(8, 9), decoder="opencv").batch(20))
    assert (plain == pillow).all()
    assert (fast == read_all(fb.from_images(paths, size=(8, 9)).batch(20))["image"]).all()


def test_a_pipeline_with_other_options_refuses_a_state(folder):
    state = open_images(folder).batch(4).feed("numpy").state_dict()
    others = [{"size": (9, 9)}, {"channels": 1}, {"class_names": ["ant"]}, {"label": None}]
    for other in others:
        with open_images(folder, **other).batch(4).feed("numpy") as feed, pytest.raises(ForebayError):
            feed.load_state_dict(state)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("content", [b"", b"just text", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_image_raises_an_error_with_its_path(tmp_path, decoder, content):
    save(tmp_path / "a" / "1.jpg", 0)
    (tmp_path / "a" / "2.jpg").write_bytes(content)
    pipeline = open_images(tmp_path, decoder=decoder).batch(2)
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match=r"a/2\.jpg cannot be decoded"):
        next(iter(feed))


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_wrong_extension_does_not_matter(tmp_path, decoder):
    save(tmp_path / "a" / "1.png", 0).rename(tmp_path / "a" / "1.jpg")
    save(tmp_path / "a" / "2.jpg", 0).rename(tmp_path / "a" / "2.png")
    assert read_all(open_images(tmp_path, decoder=decoder).batch(2))["image"].shape == (2, 8, 9, 3)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("resize", ["stretch", "crop"])
def test_images_of_one_pixel_become_rows_of_any_size(tmp_path, decoder, resize):
    for number, size in enumerate([(1, 1), (1, 70), (70, 1)]):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.new("RGB", size, (10, 200, 30)).save(tmp_path / "a" / f"{number}.jpg", quality=100, subsampling=0)
    rows = read_all(open_images(tmp_path, decoder=decoder, resize=resize).batch(3))["image"]
    assert (np.abs(rows.astype(int) - (10, 200, 30)) <= 3).all()


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_file_that_disappears_raises_an_error_with_its_path(tmp_path, decoder):
    paths = [save(tmp_path / "a" / f"{number}.jpg", number) for number in range(2)]
    pipeline = open_images(tmp_path, decoder=decoder).batch(2)
    paths[1].unlink()
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match=r"1\.jpg is missing now"):
        next(iter(feed))


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_unreadable_file_raises_an_error_with_its_path(tmp_path, decoder):
    """Not even root can open a symbolic link to itself."""
    save(tmp_path / "a" / "1.jpg", 0)
    unreadable = save(tmp_path / "a" / "2.jpg", 0)
    pipeline = open_images(tmp_path, decoder=decoder).batch(2)
    unreadable.unlink()
    unreadable.symlink_to(unreadable)
    with pipeline.feed("numpy") as feed, pytest.raises(SourceError, match=r"2\.jpg"):
        next(iter(feed))


def test_an_empty_folder_is_refused(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(SourceError, match="matches nothing"):
        fb.from_images(tmp_path / "*" / "*.jpg", size=(8, 9), label="folder")


def test_a_url_is_refused_with_advice():
    with pytest.raises(SourceError, match=r"is a URL. Download the images, or store them in tar archives"):
        fb.from_images("s3://bucket/*.jpg", size=(8, 9))


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 2},
        {"size": (0, 1)},
        {"resize": "fit"},
        {"decoder": "dali"},
        {"interpolation": "cubic"},
        {"interpolation": "nearest", "decoder": "nvjpeg", "size": (8, 9)},
    ],
)
def test_invalid_options_are_refused(folder, options):
    with pytest.raises(SpecError):
        open_images(folder, **options)


def test_images_that_are_not_resized_take_every_interpolation(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "0.jpg")
    images = fb.from_images(tmp_path / "*.jpg", interpolation="nearest", decoder="nvjpeg")
    assert images.source.encoded_images is not None


def test_the_size_may_be_an_array_or_a_list_but_no_pair_of_booleans(folder):
    expected = read_all(open_images(folder).batch(4))["image"]
    for size in (np.array([8, 9]), [8, 9], np.array([8, 9], np.uint8)):
        assert np.array_equal(read_all(open_images(folder, size=size).batch(4))["image"], expected)
    for size in ((True, True), np.array([True, True])):
        with pytest.raises(SpecError, match=r"is not a size. Pass \(height, width\), two integers of at least 1"):
            open_images(folder, size=size)


@pytest.mark.parametrize("size", [(300, 400), (375, 250), (24, 24), (32, 32)])
@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "opencv"])
def test_the_shorter_side_is_scaled_before_the_crop(tmp_path, decoder, size):
    y, x = np.mgrid[: size[0], : size[1]]
    image = Image.fromarray(np.stack([y * 255 / size[0], x * 255 / size[1], y * 0 + 60], -1).astype(np.uint8))
    image.save(tmp_path / "a.jpg", quality=98, subsampling=0)
    scale = 32 / min(size)
    scaled = image.resize((round(size[1] * scale), round(size[0] * scale)), Image.Resampling.BILINEAR)
    top, left = (scaled.height - 24) // 2, (scaled.width - 24) // 2
    pipeline = fb.from_images(tmp_path / "a.jpg", size=(24, 24), resize="crop", short_side=32, decoder=decoder)
    found = read_all(pipeline.batch(1))["image"][0]
    assert np.abs(found.astype(int) - np.asarray(scaled)[top : top + 24, left : left + 24]).max() <= 5


@pytest.mark.parametrize("options", [{"short_side": 5}, {"short_side": 9.5}, {"resize": "stretch"}, {"size": None}])
def test_a_shorter_side_that_does_not_fit_the_other_options_is_refused(folder, options):
    with pytest.raises(SpecError):
        open_images(folder, **({"short_side": 12, "resize": "crop"} | options))


def test_a_crop_without_a_size_is_refused(folder):
    with pytest.raises(SpecError, match=r"resize='crop' needs a size to crop to"):
        open_images(folder, resize="crop", size=None)


def test_a_folder_is_refused_with_patterns_of_images(folder):
    with pytest.raises(SourceError, match=r"is a directory. Pass a glob of its images, such as .*jpg', or .*jpg'"):
        fb.from_images(folder, size=(8, 9))


def test_stats_count_the_images_of_pillow(folder):
    with open_images(folder, decoder="pillow").batch(ROWS).feed("numpy") as feed:
        next(feed)
        assert feed.stats()["source"]["pillow_images"] >= ROWS


def open_images(folder, **options):
    return fb.from_images(folder / "*" / "*", **({"size": (8, 9), "label": "folder"} | options))


def single_image(path, decoder):
    return read_all(fb.from_images(path, size=(8, 9), decoder=decoder).batch(1))["image"]


def files(folder):
    return sorted(folder.glob("*/*"), key=lambda path: (path.parent.name, int(path.stem)))


def save(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((40 + seed, 30), Image.Resampling.BICUBIC).save(path)
    return path


def read_all(pipeline):
    with pipeline.feed("numpy") as feed:
        batches = [copy_leaves(batch) for batch in feed]
    if not isinstance(batches[0], dict):
        return np.concatenate(batches)
    return {leaf: np.concatenate([batch[leaf] for batch in batches]) for leaf in batches[0]}


def copy_leaves(batch):
    return {leaf: array.copy() for leaf, array in batch.items()} if isinstance(batch, dict) else batch.copy()
