"""`from_images(interpolation="nearest")`: masks keep their class numbers, with every decoder."""

import numpy as np
import pytest
from PIL import Image
from tests.support.device_like import DeviceLikeEngine, FakeDeviceHandOff

import forebay as fb

DECODERS = ("pillow", "simplejpeg", "opencv")
SIZES = [(64, 48), (13, 17), (8, 9), (5, 3), (1, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    for number, size in enumerate(SIZES):
        pixels = np.random.default_rng(number).choice([0, 200], size).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("options", [{}, {"resize": "crop"}, {"resize": "crop", "short_side": 12}])
def test_nearest_makes_no_new_values(folder, decoder, options):
    pipeline = open_masks(folder, decoder=decoder, **options)
    assert set(np.unique(read_images(pipeline))) == {0, 200}


@pytest.mark.parametrize("decoder", DECODERS)
def test_nearest_takes_the_pixels_of_pillow(folder, decoder):
    found = read_images(open_masks(folder, decoder=decoder))
    for number, pixels in enumerate(found):
        with Image.open(folder / f"{number}.png") as image:
            np.testing.assert_array_equal(pixels[..., 0], image.resize((9, 8), Image.Resampling.NEAREST))


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
@pytest.mark.parametrize("options", [{}, {"resize": "crop"}, {"resize": "crop", "short_side": 12}])
def test_all_decoders_take_the_same_pixels_of_a_jpeg_image(tmp_path, orientation, options):
    pixels = np.random.default_rng(0).integers(0, 256, (96, 70), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(pixels).save(tmp_path / "0.jpg", exif=exif)
    found = [read_images(open_masks(tmp_path, decoder=decoder, **options)) for decoder in DECODERS]
    np.testing.assert_array_equal(found[1], found[2])
    # Pillow may contain another version of libjpeg-turbo.
    np.testing.assert_allclose(found[1].astype(int), found[0].astype(int), atol=2)


def test_explain_names_the_interpolation(folder):
    for decoder in DECODERS:
        with open_masks(folder, decoder=decoder).batch(2).feed("numpy") as feed:
            assert "resizes them to 8 x 9 (nearest)" in feed.explain()


def test_a_feed_to_a_device_says_why_the_host_decodes(folder):
    pipeline = open_masks(folder, decoder="auto").batch(2)
    with pipeline.feed("numpy", device=DeviceLikeEngine(FakeDeviceHandOff())) as feed:
        assert "interpolation='nearest', and a device resizes with a bilinear filter only" in feed.explain()


def test_images_that_need_no_resize_are_not_changed(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 9, (8, 9), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    for size in (None, (8, 9)):
        np.testing.assert_array_equal(read_images(open_masks(tmp_path, size=size))[0, ..., 0], pixels)


def test_an_image_and_its_mask_keep_the_same_parts(tmp_path):
    pixels = np.random.default_rng(0).choice([0, 200], (30, 40)).astype(np.uint8)
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        Image.fromarray(pixels).save(tmp_path / kind / "0.png")
    options = {"size": (30, 30), "resize": "crop", "channels": 1}
    images = fb.from_images(tmp_path / "images" / "*.png", **options)
    masks = fb.from_images(tmp_path / "masks" / "*.png", **options, interpolation="nearest")
    with fb.zip_rows(images, masks.rename({"image": "mask"})).batch(1).feed("numpy") as feed:
        batch = next(feed)
    np.testing.assert_array_equal(batch["image"], batch["mask"])


def open_masks(folder, **options):
    return fb.from_images(folder / "*", **({"size": (8, 9), "channels": 1, "interpolation": "nearest"} | options))


def read_images(pipeline):
    with pipeline.batch(16).feed("numpy") as feed:
        return next(feed)["image"].copy()
