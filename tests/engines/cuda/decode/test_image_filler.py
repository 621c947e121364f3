"""The device decodes and resizes images; the host decodes what the device refuses."""

import ctypes
import io
import re
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.engines.cuda.pull.host_comparison import feed_of, read_all
from tests.support.fake_cuda import MarkerFramework, StreamFramework, fake_cuda
from tests.support.fake_cuda.nvjpeg import install_nvjpeg

import forebay as fb
from forebay.core.encoded_images import find_source_box
from forebay.engines.cuda import nvjpeg
from forebay.engines.cuda.decode import device_decoder, image_filler
from forebay.errors import FrameworkError, PipelineError, SourceError

SIZE = (16, 20)


@pytest.fixture(params=[(StreamFramework, "late"), (MarkerFramework, "any")])
def framework(request, monkeypatch):
    kind, pace = request.param
    with fake_cuda(kind=kind, pace=pace) as made:
        made.nvjpeg = install_nvjpeg(monkeypatch, made.gpu)
        yield made
        assert made.nvjpeg.live == set()


def picture(height, width, seed=0):
    """Return a smooth image with some noise, which JPEG keeps."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 7 + seed), np.cos(y / 5 + seed), np.sin((x + y) / 9)], axis=-1)
    return (waves * 100 + 128).astype(np.uint8)


def save_images(folder, sizes, mode="RGB", **options):
    for number, (height, width) in enumerate(sizes):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture(height, width, number)).convert(mode).save(path, quality=95, **options)
    return sorted(folder.glob("*/*.jpg"))


def expected_image(path, *, resize="stretch", mode="RGB", short_side=None):
    """Decode an image with Pillow at its full size, and resize it."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert(mode)
    box = None
    if resize == "crop":
        top, left, _, _ = find_source_box((image.height, image.width), SIZE, short_side)
        box = left, top, image.width - left, image.height - top
    resized = np.asarray(image.resize(SIZE[::-1], Image.Resampling.BILINEAR, box))
    return resized.reshape(*SIZE, -1)


def open_images(folder, **options):
    return fb.from_images(folder / "*" / "*.jpg", size=SIZE, decoder="nvjpeg", **options)


def decode_all(pipeline, framework, **options):
    with feed_of(pipeline, framework, **options) as feed:
        batches = read_all(framework, feed)
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}, feed.stats(), feed


def assert_near(images, paths, **options):
    expected = np.stack([expected_image(path, **options) for path in paths])
    assert images.shape == expected.shape
    assert np.abs(images.astype(int) - expected).max() <= 1  # Pillow rounds between the two axes


SIZES = [(30, 40), (40, 30), (16, 20), (8, 9), (90, 17), (64, 80), (33, 33), (20, 200), (17, 21)]


@pytest.mark.parametrize("resize", ["stretch", "crop"])
def test_the_device_decodes_and_resizes_images(tmp_path, framework, resize):
    paths = save_images(tmp_path, SIZES)
    pipeline = open_images(tmp_path, resize=resize, label="folder").batch(4)
    leaves, stats, feed = decode_all(pipeline, framework)
    assert_near(leaves["image"], paths, resize=resize)
    assert leaves["label"].tolist() == [int(path.parent.name == "dog") for path in paths]
    assert stats["decoded_images"]["device"] >= len(SIZES)  # more, if the feed has begun the next epoch
    assert stats["decoded_images"]["host"] == 0
    assert re.search(r"decoder +nvjpeg", feed.explain())


def test_the_device_crops_after_the_shorter_side_was_scaled(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    leaves, stats, _ = decode_all(open_images(tmp_path, resize="crop", short_side=24).batch(4), framework)
    assert_near(leaves["image"], paths, resize="crop", short_side=24)
    assert stats["decoded_images"]["host"] == 0


def test_the_device_crops_the_random_boxes_of_the_host(tmp_path, framework):
    paths, exif = save_images(tmp_path, SIZES), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture(44, 70)).save(paths[0], quality=95, exif=exif)
    Image.fromarray(picture(40, 50)).convert("CMYK").save(paths[1])  # the host decodes this image

    def batches_of(decoder):
        images = fb.from_images(tmp_path / "*" / "*.jpg", resize=fb.random_resized_crop(SIZE), decoder=decoder)
        return images.shuffle(seed=1).batch(9)

    with feed_of(batches_of("nvjpeg"), framework) as feed, batches_of("pillow").feed("numpy") as host_feed:
        for _ in range(2):  # epochs
            (on_device,), on_host = read_all(framework, feed), next(iter(host_feed))
            assert np.abs(np.array(on_device["image"]).astype(int) - on_host["image"]).max() <= 1


def test_gray_images_have_one_channel(tmp_path, framework):
    paths = save_images(tmp_path, SIZES, mode="L")
    leaves, _, _ = decode_all(open_images(tmp_path, channels=1).batch(5), framework)
    assert_near(leaves["image"], paths, mode="L")


def test_the_orientation_of_exif_is_applied(tmp_path, framework):
    for orientation in range(10):  # EXIF does not define 0 and 9
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / "a" / f"{orientation}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture(24, 31)).save(path, quality=95, exif=exif)
    leaves, _, _ = decode_all(open_images(tmp_path).batch(10), framework)
    assert_near(leaves["image"], sorted(tmp_path.glob("*/*.jpg")))


def test_the_host_decodes_what_the_device_refuses(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    Image.fromarray(picture(30, 30)).convert("CMYK").save(paths[2])
    paths[3].write_bytes(png_of(picture(25, 25)))
    pipeline = open_images(tmp_path, label="folder").batch(4)
    leaves, stats, _ = decode_all(pipeline, framework)
    assert stats["decoded_images"]["host"] >= 2
    host = decode_with_pillow(tmp_path)
    assert np.array_equal(leaves["image"][[2, 3]], host[[2, 3]])
    others = [number for number in range(len(SIZES)) if number not in (2, 3)]
    assert_near(leaves["image"][others], [paths[number] for number in others])


def png_of(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def decode_with_pillow(folder):
    with fb.from_images(folder / "*" / "*.jpg", size=SIZE, decoder="auto").batch(100).feed("numpy") as feed:
        return next(iter(feed))["image"].copy()


def test_a_damaged_image_ends_the_feed_with_its_name(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    paths[4].write_bytes(paths[4].read_bytes()[:40])
    with pytest.raises(SourceError, match=re.escape(str(paths[4]))):
        decode_all(open_images(tmp_path).batch(9), framework)


def test_an_image_with_too_many_pixels_is_left_to_the_host_which_refuses_it(tmp_path, framework, monkeypatch):
    save_images(tmp_path, SIZES)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # the largest image has 5,120 pixels
    with pytest.raises(SourceError, match="safety limit of 2000"):
        decode_all(open_images(tmp_path).batch(9), framework)


def test_without_a_size_all_images_must_have_the_size_of_the_first(tmp_path, framework):
    paths = save_images(tmp_path, [(24, 32)] * 6)
    pipeline = fb.from_images(tmp_path / "*" / "*.jpg", decoder="nvjpeg").batch(4)
    leaves, _, _ = decode_all(pipeline, framework)
    for image, path in zip(leaves["image"], paths, strict=True):
        with Image.open(path) as opened:
            assert np.array_equal(image, np.asarray(opened))
    Image.fromarray(picture(25, 32)).save(paths[3])
    with pytest.raises(SourceError, match="is 25 x 32, but"):
        decode_all(pipeline, framework)


def test_a_resumed_feed_has_the_same_rows(tmp_path, framework):
    save_images(tmp_path, [(30, 40)] * 23)
    pipeline = open_images(tmp_path, label="folder").shuffle(seed=3).batch(4)
    with feed_of(pipeline, framework) as feed:
        first = read_all(framework, feed)
        batches = iter(feed)
        read_all(framework, [next(batches), next(batches)])
        state = feed.state_dict()
        rest = read_all(framework, batches)
    with feed_of(pipeline, framework) as feed:
        feed.load_state_dict(state)
        resumed = read_all(framework, feed)
    assert len(first) == 6
    assert [batch["image"].tobytes() for batch in resumed] == [batch["image"].tobytes() for batch in rest]


def test_the_host_decodes_only_the_images_that_fail_on_the_device(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    framework.nvjpeg.fails.update(paths[number].read_bytes() for number in (0, 5))
    leaves, stats, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert stats["decoded_images"]["host"] * 7 == stats["decoded_images"]["device"] * 2
    assert np.array_equal(leaves["image"][[0, 5]], decode_with_pillow(tmp_path)[[0, 5]])
    others = [number for number in range(len(SIZES)) if number not in (0, 5)]
    assert_near(leaves["image"][others], [paths[number] for number in others])


def test_the_host_decodes_the_rest_of_a_batch_after_many_failures(tmp_path, framework, monkeypatch):
    monkeypatch.setattr(device_decoder, "MAX_FAILURES", 2)
    paths = save_images(tmp_path, SIZES)
    framework.nvjpeg.fails.add(paths[0].read_bytes())
    leaves, stats, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert stats["decoded_images"]["device"] == 0
    assert np.array_equal(leaves["image"], decode_with_pillow(tmp_path))
    framework.nvjpeg.fails.clear()
    leaves, stats, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert stats["decoded_images"]["host"] == 0
    assert_near(leaves["image"], paths)


def test_images_that_the_hardware_refuses_are_decoded_on_the_host(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    framework.nvjpeg.refuses.update(path.read_bytes() for path in paths[::2])
    leaves, stats, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert stats["decoded_images"]["host"] * 4 == stats["decoded_images"]["device"] * 5
    assert np.array_equal(leaves["image"][::2], decode_with_pillow(tmp_path)[::2])
    assert_near(leaves["image"][1::2], paths[1::2])


def test_an_incomplete_file_is_left_to_the_host_which_refuses_it(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    paths[4].write_bytes(paths[4].read_bytes()[:-40])
    with pytest.raises(SourceError, match=re.escape(str(paths[4]))):
        decode_all(open_images(tmp_path).batch(9), framework)


def test_large_groups_are_decoded_in_parts(tmp_path, framework, monkeypatch):
    paths = save_images(tmp_path, SIZES)
    monkeypatch.setattr(device_decoder, "MAX_DECODED_NBYTES", 9000)
    leaves, _, _ = decode_all(open_images(tmp_path).batch(9), framework)
    assert_near(leaves["image"], paths)


def test_large_images_at_changing_places_do_not_exceed_the_memory_of_a_decoder(tmp_path, framework, monkeypatch):
    paths = save_images(tmp_path, [(64, 80) if number % 6 == number // 6 else (8, 9) for number in range(36)])
    limit, reserved = 40_000, []  # an image of 64 x 80 takes 15,360 bytes

    class WatchedDecoder(device_decoder.DeviceDecoder):
        def _reserve(self, nbytes):
            super()._reserve(nbytes)
            reserved.append(self._nbytes)

    monkeypatch.setattr(device_decoder, "MAX_DECODED_NBYTES", limit)
    monkeypatch.setattr(image_filler, "DeviceDecoder", WatchedDecoder)
    leaves, _, _ = decode_all(open_images(tmp_path).batch(6), framework)
    assert max(reserved) <= limit
    assert_near(leaves["image"], sorted(paths))


def test_more_images_than_fit_into_one_launch_are_decoded(tmp_path, framework, monkeypatch):
    paths = save_images(tmp_path, [(17, 23)] * 70)
    leaves, _, _ = decode_all(open_images(tmp_path).batch(70), framework)
    assert_near(leaves["image"], paths)


def test_a_map_may_run_on_the_device_after_the_decoder(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    pipeline = open_images(tmp_path).batch(4).map(lambda batch: {"pixels": batch["image"]}, where="device")
    leaves, _, _ = decode_all(pipeline, framework)
    assert_near(leaves["pixels"], paths)


# The choice of a decoder


def test_auto_decodes_on_the_device_if_the_device_can(tmp_path, framework):
    paths = save_images(tmp_path, SIZES)
    pipeline = fb.from_images(tmp_path / "*" / "*.jpg", size=SIZE).batch(4)
    leaves, stats, feed = decode_all(pipeline, framework)
    assert_near(leaves["image"], paths)
    assert stats["decoded_images"]["host"] == 0
    assert re.search(r"decoder +nvjpeg", feed.explain())


def test_auto_decodes_on_the_host_if_a_map_needs_it(tmp_path, framework):
    save_images(tmp_path, SIZES)
    pipeline = fb.from_images(tmp_path / "*" / "*.jpg", size=SIZE)
    leaves, _, feed = decode_all(pipeline.map(lambda row: {"pixels": row["image"]}).batch(4), framework)
    assert np.array_equal(leaves["pixels"], decode_with_pillow(tmp_path))
    assert re.search(r"images +decoded on the host +.* runs on the host", feed.explain())


def test_auto_decodes_on_the_host_without_nvjpeg(tmp_path, monkeypatch):
    save_images(tmp_path, SIZES)
    with fake_cuda() as framework:
        monkeypatch.setattr(nvjpeg, "_LIBRARY", "libmissing.so")
        nvjpeg.load_nvjpeg.cache_clear()
        nvjpeg.why_no_nvjpeg.cache_clear()
        pipeline = fb.from_images(tmp_path / "*" / "*.jpg", size=SIZE).batch(4)
        leaves, _, feed = decode_all(pipeline, framework)
    assert np.array_equal(leaves["image"], decode_with_pillow(tmp_path))
    assert re.search(r"images +decoded on the host +nvJPEG is not installed", feed.explain())


def test_auto_decodes_on_the_host_without_hardware_decoders(tmp_path, framework, monkeypatch):
    save_images(tmp_path, SIZES)
    framework.nvjpeg.nvjpegCreateEx = lambda *arguments: 7
    leaves, _, feed = decode_all(fb.from_images(tmp_path / "*" / "*.jpg", size=SIZE).batch(4), framework)
    assert np.array_equal(leaves["image"], decode_with_pillow(tmp_path))
    assert re.search(r"images +decoded on the host +the GPU has no hardware decoders", feed.explain())


# Refusals


def test_a_map_on_the_host_is_refused(tmp_path, framework):
    save_images(tmp_path, SIZES)
    with pytest.raises(PipelineError, match=r"runs on the host, but decoder='nvjpeg'.*where='device'"):
        feed_of(open_images(tmp_path).map(lambda row: row).batch(4), framework)


def test_a_feed_to_the_cpu_is_refused(tmp_path):
    save_images(tmp_path, SIZES[:2])
    with pytest.raises(PipelineError, match=r"but the batches go to the CPU. Pass decoder='auto'"):
        open_images(tmp_path).batch(2).feed("numpy", device="cpu")


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    save_images(tmp_path, SIZES)
    with fake_cuda() as framework:
        monkeypatch.setattr(nvjpeg, "_LIBRARY", "libmissing.so")
        nvjpeg.load_nvjpeg.cache_clear()
        with pytest.raises(FrameworkError, match=r"forebay\[images-cu13\]"):
            decode_all(open_images(tmp_path).batch(4), framework)


# The kernel


def test_structs_and_constants_match_the_kernel_source():
    text = files("forebay.engines.cuda").joinpath("images.cu").read_text()
    for name in ("MAX_IMAGES", "BLOCKS_PER_IMAGE"):
        assert int(re.search(rf"const uint {name} = (\d+);", text)[1]) == getattr(image_filler, name)
    fields = {"Image": image_filler._IMAGE.names, "ResizeJob": [name for name, _ in image_filler._ResizeJob._fields_]}
    for struct, names in fields.items():
        body = re.search(rf"struct {struct} \{{(.*?)\}};", re.sub(r"//.*", "", text), re.DOTALL)[1]
        assert re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body) == list(names)
    assert image_filler._IMAGE.itemsize == 56
    assert ctypes.sizeof(image_filler._ResizeJob) <= 4096  # bytes; the limit for the arguments of a kernel
