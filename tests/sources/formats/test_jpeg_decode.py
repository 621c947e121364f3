"""The simplejpeg decoder has pixels near those of Pillow, which decodes what simplejpeg refuses."""

import io
import pickle
import re
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from forebay.errors import FrameworkError, SourceError, SpecError
from forebay.sources.formats import encoded_reader
from forebay.sources.formats.image_options import ImageOptions
from forebay.sources.formats.jpeg_decode import JpegDecoder, make_image_decoder

SIZES = st.integers(1, 90)
ORIENTATION_TAG = 0x0112


@given(SIZES, SIZES, st.sampled_from([1, 3, 4]), st.sampled_from(["L", "RGB"]))
def test_without_a_resize_the_pixels_of_colour_images_are_those_of_pillow(height, width, channels, mode):
    data = jpeg_bytes(photo(height, width).convert(mode))
    options = ImageOptions((height, width), channels)
    # libjpeg-turbo takes gray from the luma in the file. Pillow computes it from RGB, which may be clipped.
    allowed = 16 if channels == 1 and mode == "RGB" else 0
    assert differences(data, options).max() <= allowed
    assert counters(data, options) == {"simplejpeg_images": 1, "pillow_images": 0}


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from(["stretch", "crop"]), st.sampled_from([1, 3, 4]))
def test_resized_images_are_near_those_of_pillow(height, width, rows, columns, resize, channels):
    data = jpeg_bytes(photo(height, width))
    options = ImageOptions((rows, columns), channels, resize)
    assert counters(data, options)["pillow_images"] == 0
    assert differences(data, options).mean() < 30  # a wrong crop, orientation or channel order differs by more


@pytest.mark.parametrize("resize", ["stretch", "crop"])
@pytest.mark.parametrize("size", [(224, 224), (100, 300), (40, 30), (600, 700)])
def test_a_smooth_photo_differs_by_little_from_pillow(size, resize):
    found = differences(jpeg_bytes(photo(375, 500)), ImageOptions(size, 3, resize))
    assert found.mean() < 2.5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", ["stretch", "crop"])
@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "opencv"])
def test_orientation_tags_are_applied(orientation, resize, decoder):
    upright = photo(60, 90)
    data = jpeg_bytes(store_turned(upright, orientation), exif=exif_with(orientation), subsampling=0)
    options = ImageOptions((60, 90), 3, resize, upright=True)
    found = decode(decoder, data, options).astype(int)
    assert np.abs(found - np.asarray(upright)).mean() < 3


def test_without_a_size_the_first_image_gives_the_size_after_its_rotation():
    data = jpeg_bytes(photo(60, 90), exif=exif_with(6))
    for decoder in ("pillow", "simplejpeg", "opencv"):
        assert decode(decoder, data, ImageOptions(channels=3, upright=True)).shape == (90, 60, 3)


def test_orientation_tags_are_ignored_unless_requested():
    data = jpeg_bytes(photo(60, 90), exif=exif_with(6))
    for decoder in ("pillow", "simplejpeg", "opencv"):
        assert decode(decoder, data, ImageOptions(channels=3)).shape == (60, 90, 3)


@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "opencv"])
@pytest.mark.parametrize("exif", [b"Exif\0\0damaged", b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b""])
@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # of Pillow
def test_a_damaged_exif_block_is_ignored(decoder, exif):
    data = jpeg_bytes(photo(6, 9), exif=exif)
    assert decode(decoder, data, ImageOptions(channels=3, upright=True)).shape == (6, 9, 3)


def test_an_unknown_orientation_is_ignored():
    data = jpeg_bytes(photo(6, 9), exif=exif_with(9))
    assert decode("simplejpeg", data, ImageOptions(channels=3, upright=True)).shape == (6, 9, 3)


@pytest.mark.parametrize(
    ("form", "mode"),
    [("JPEG", "CMYK"), ("PNG", "P"), ("PNG", "LA"), ("PNG", "1"), ("WEBP", "RGBA"), ("TIFF", "RGB"), ("BMP", "RGB")],
)
def test_pillow_decodes_what_simplejpeg_does_not(form, mode):
    data, options = encode(photo(20, 30).convert(mode), form), ImageOptions((7, 5), 4, "crop")
    assert not differences(data, options).any()
    assert counters(data, options) == {"simplejpeg_images": 0, "pillow_images": 1}


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"optimize": True}])
def test_all_kinds_of_jpeg_have_the_pixels_of_pillow(options):
    data = jpeg_bytes(photo(33, 47), **options)
    assert not differences(data, ImageOptions((33, 47), 3)).any()


@pytest.mark.parametrize("kept", [2, 20, 200, -400, -2])
def test_a_truncated_image_is_refused_with_its_name(kept):
    data, options = jpeg_bytes(photo(100, 100)), ImageOptions((7, 5), 3)
    decoder = JpegDecoder("first", data, options, uses_opencv=True)
    with pytest.raises(SourceError, match=r"^second cannot be decoded"):
        decoder.decode("second", data[:kept], decoder.spec.empty(1)[0])


@given(st.data())
def test_a_damaged_image_is_decoded_or_named_in_an_error(data):
    encoded = bytearray(jpeg_bytes(photo(24, 24)))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(2, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    options = ImageOptions((12, 12), 3, upright=True)
    decoder = JpegDecoder("first", jpeg_bytes(photo(24, 24)), options, uses_opencv=True)
    try:
        decoder.decode("damaged", bytes(encoded), decoder.spec.empty(1)[0])
    except SourceError as error:
        assert "damaged" in str(error)  # noqa: PT017 - most damaged images are decoded


@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "opencv"])
def test_a_header_with_an_absurd_size_is_refused_before_decoding(decoder, monkeypatch):
    first, options = jpeg_bytes(photo(8, 8)), ImageOptions((4, 4), 3)
    made = make_image_decoder("first", first, options, decoder)
    if decoder != "pillow":
        monkeypatch.setattr(made._simplejpeg, "decode_jpeg", pytest.fail)
    with pytest.raises(SourceError, match=r"huge has more pixels than Pillow's safety limit"):
        made.decode("huge", with_size(first, 65500, 65500), made.spec.empty(1)[0])


def test_a_file_that_is_too_long_to_read_at_once_goes_to_pillow(tmp_path, monkeypatch):
    path, options = tmp_path / "a.jpg", ImageOptions((4, 4), 3)
    path.write_bytes(jpeg_bytes(photo(8, 8)))
    monkeypatch.setattr(encoded_reader, "MAX_CONTENT_NBYTES", 10)
    assert counters(path, options) == {"simplejpeg_images": 0, "pillow_images": 1}


@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg", "opencv"])
def test_different_sizes_and_channels_are_refused_with_a_fix(decoder):
    made = make_image_decoder("first", jpeg_bytes(photo(8, 8)), ImageOptions(), decoder)
    with pytest.raises(SourceError, match=r"second is 9 x 8, but first is 8 x 8 .*size=\(8, 8\)"):
        made.decode("second", jpeg_bytes(photo(9, 8)), made.spec.empty(1)[0])
    with pytest.raises(SourceError, match=r"second has 1 channels .*channels=3"):
        made.decode("second", jpeg_bytes(photo(8, 8).convert("L")), made.spec.empty(1)[0])


def test_a_pickled_decoder_decodes():
    data = jpeg_bytes(photo(8, 8))
    copy = pickle.loads(pickle.dumps(JpegDecoder("first", data, ImageOptions((4, 4), 3), uses_opencv=True)))
    out = copy.spec.empty(1)[0]
    copy.decode("first", data, out)
    assert (out == decode("opencv", data, ImageOptions((4, 4), 3))).all()


@pytest.mark.parametrize(
    "options", [{"resize": "squash"}, {"size": 3}, {"size": (2.5, 3)}, {"size": None, "channels": 5}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(SpecError):
        make_image_decoder("first", jpeg_bytes(photo(8, 8)), ImageOptions(**options), "auto")


def test_an_unknown_decoder_is_refused():
    with pytest.raises(SpecError, match=r"decoder='turbo' is unknown. Choose one of 'auto', 'pillow', 'simple"):
        make_image_decoder("first", jpeg_bytes(photo(8, 8)), ImageOptions(), "turbo")


@pytest.mark.parametrize(
    ("module", "choice", "hint"),
    [
        ("simplejpeg", "pillow", "Run pip install 'forebay[images]'"),
        ("cv2", "simplejpeg", "pip install opencv-python-headless"),
    ],
)
def test_without_a_package_auto_uses_the_next_decoder_and_gives_the_reason(module, choice, hint, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    made = make_image_decoder("first", jpeg_bytes(photo(8, 8)), ImageOptions((4, 4)), "auto")
    assert made.decision.choice == choice
    assert hint in made.decision.why


@pytest.mark.parametrize(
    ("module", "decoder", "install"),
    [("simplejpeg", "simplejpeg", "'forebay[images]'"), ("cv2", "opencv", "opencv-python-headless")],
)
def test_without_the_package_of_a_decoder_the_error_says_how_to_install_it(module, decoder, install, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FrameworkError, match=f"'{decoder}' needs {module}, .* pip install {re.escape(install)}"):
        make_image_decoder("a", jpeg_bytes(photo(8, 8)), ImageOptions(), decoder)


def photo(height, width):
    """Return an image with smooth colours."""
    coarse = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def store_turned(image, orientation):
    """Return the image as a camera stores it with this orientation."""
    inverse = {6: 8, 8: 6}.get(orientation, orientation)
    methods = [None, None, *(Image.Transpose(value) for value in (0, 3, 1, 5, 4, 6, 2))]
    return image if inverse == 1 else image.transpose(methods[inverse])


def exif_with(orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return exif.tobytes()


def encode(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def jpeg_bytes(image, **options):
    return encode(image, "JPEG", **({"quality": 95} | options))


def with_size(data, height, width):
    """Return a JPEG image whose header has another size."""
    position = data.index(b"\xff\xc0") + 5
    return data[:position] + struct.pack(">HH", height, width) + data[position + 4 :]


def decode(decoder, data, options):
    made = make_image_decoder("image", data, options, decoder)
    out = made.spec.empty(1)[0]
    made.decode("image", data, out)
    return out


def differences(data, options):
    """Return for each value how far the worse of the two fast decoders is from Pillow."""
    pillow = decode("pillow", data, options).astype(int)
    return np.maximum(*(np.abs(decode(decoder, data, options) - pillow) for decoder in ("simplejpeg", "opencv")))


def counters(data, options):
    decoder = JpegDecoder("image", data, options, uses_opencv=True)
    decoder.decode("image", data, decoder.spec.empty(1)[0])
    return decoder.counters()
