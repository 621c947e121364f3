"""Decoding of images with Pillow, to arrays of one shape."""

import ctypes
import io
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.core.decision import Decision
from forebay.core.encoded_images import EncodedImages, find_source_box
from forebay.core.rows import Rows
from forebay.core.spec import Array, ArraySpec
from forebay.errors import FrameworkError, SourceError
from forebay.sources.formats.decoder_versions import decoder_versions
from forebay.sources.formats.image_options import Box, ImageOptions

try:
    from PIL import ExifTags, Image, UnidentifiedImageError
except ModuleNotFoundError as missing:
    raise FrameworkError(
        "Pillow, which decodes images, is not installed. Install it: pip install 'forebay[images]'.", name="PIL"
    ) from missing

__all__ = [
    "EncodedImage",
    "ImageDecoder",
    "is_image",
    "limit_memory",
    "max_pixels",
    "open_encoded",
    "read_orientation",
]

EncodedImage: TypeAlias = Path | bytes  # a file, or the content of a file

# Formats that Forebay decodes, whatever the suffix of a file. The other formats of Pillow are rare in datasets. Some of
# them are dangerous in untrusted files: Pillow starts Ghostscript to decode EPS.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels of the array -> Pillow mode
# Pillow mode -> channels of the array, for modes with at most 8 bits per channel, which fit in uint8.
_CHANNELS = {"1": 1, "L": 1, "P": 3, "RGB": 3, "CMYK": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "LA": 4, "PA": 4, "RGBA": 4}
# EXIF orientation -> how Pillow turns the image upright. Orientation 1 is upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pixels of an image. Only one thread at a time decodes an image with more pixels, because Pillow may need 8 bytes of
# memory for each pixel, 128 MiB at this limit.
_LARGE_PIXELS = 1 << 24
_large_image_lock = threading.Lock()
_TILE_WIDTH_TAG, _TILE_LENGTH_TAG = 322, 323  # tag numbers of TIFF


class ImageDecoder:
    """Decodes images to uint8 arrays of shape (height, width, channels). Thread-safe.

    All images must have the size and the channels of the first image, unless the options convert them. `name` is the
    name of an image in error messages.
    """

    def __init__(self, name: str, first: EncodedImage, options: ImageOptions, note: str = "") -> None:
        """Read size and channels of the image `first`. `note` is appended to the decision."""
        options.validate()
        self._lock, self._pillow_images = threading.Lock(), 0
        self._first_name, self._options, self._note = name, options, note
        with open_encoded(name, first) as image:
            _refuse_long_values(name, image)
            channels = options.channels or _count_channels(name, image)
            if options.size is None and options.upright and read_orientation(image) >= 5:
                image.load()  # Pillow itself turns images of some formats upright when it loads them
                turned = self._turn_upright(image)
                height, width = turned.height, turned.width
            else:
                height, width = options.size or (image.height, image.width)
            self._shape = (int(height), int(width), channels)
        self.spec = ArraySpec(self._shape, np.uint8)

    @property
    def decision(self) -> Decision:
        """The decoder and how it resizes, for `explain()`."""
        resize = self._explain_resize("nearest" if self.takes_nearest else "bilinear, antialiased")
        return Decision("decoder", "pillow", f"decodes images{resize}{self._note}")

    @property
    def takes_nearest(self) -> bool:
        """Whether a resize copies the nearest pixels instead of averaging pixels."""
        return self._options.interpolation == "nearest" and self._options.size is not None

    @property
    def crops_at_random(self) -> bool:
        """Whether the row number selects the part of an image that becomes the row."""
        return self._options.boxes is not None

    def encoded_images(self, read: Callable[[Rows], list[bytes | None]]) -> EncodedImages:
        """Return what a device needs to decode the same images into the first leaf.

        `read` returns the encoded image of each row, or None for images that only the host may decode.
        """
        options = self._options
        return EncodedImages(
            leaf=0,
            read=read,
            resizes=options.size is not None,
            find_boxes=self._find_boxes if options.boxes is not None or options.resize == "crop" else None,
            upright=options.upright,
            max_pixels=max_pixels(),
        )

    def identify(self) -> tuple[Any, ...]:
        """Return what the pixels depend on besides the file, for a cache key."""
        decoder = self.decision.choice
        return decoder, self._options, self._shape, decoder_versions(decoder)

    def counters(self) -> dict[str, int]:
        """Return how many images each library has decoded."""
        return {"pillow_images": self._pillow_images}

    def decode(self, name: str, encoded: EncodedImage, out: Array, row: int = 0) -> None:
        """Decode an image into `out`. The row number selects the box if the options crop at random."""
        self._decode_with_pillow(name, encoded, out, row)
        with self._lock:
            self._pillow_images += 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _decode_with_pillow(self, name: str, encoded: EncodedImage, out: Array, row: int) -> None:
        if not self._decode_unless_large(name, encoded, out, row, limit=_LARGE_PIXELS):
            with limit_memory(_LARGE_PIXELS + 1):  # one image at a time: its pixels stay in memory during the call
                self._decode_unless_large(name, encoded, out, row, limit=math.inf)

    def _decode_unless_large(self, name: str, encoded: EncodedImage, out: Array, row: int, *, limit: float) -> bool:
        """Decode an image unless it has more pixels than `limit`. Return whether it was decoded."""
        with open_encoded(name, encoded) as image:
            if _count_pixels(image) > limit:
                return False
            self._decode_opened(name, image, out, row)
            return True

    def _decode_opened(self, name: str, image: Any, out: Array, row: int) -> None:
        height, width, channels = self._shape
        _refuse_long_values(name, image)
        if not self._options.upright:
            self._validate(name, image)
        image.load()
        loaded = self._turn_upright(image)
        self._validate(name, loaded)  # again, because Pillow before version 11 turns a TIFF image in `load`
        converted = loaded if loaded.mode == _MODES[channels] else loaded.convert(_MODES[channels])
        box = self._options.find_box(converted.size[::-1], (height, width), row)
        if converted.size != (width, height) or box is not None:
            converted = self._resize(converted, box)
        out[...] = np.asarray(converted).reshape(self._shape)

    def _resize(self, image: Any, box: Box | None) -> Any:
        method = Image.Resampling.NEAREST if self.takes_nearest else Image.Resampling.BILINEAR
        sides = None if box is None else (box[1], box[0], box[1] + box[3], box[0] + box[2])
        return image.resize((self._shape[1], self._shape[0]), method, sides)

    def _take_nearest(self, pixels: Array, row: int) -> Array:
        """Return the pixels of an upright image, resized to a row with interpolation="nearest"."""
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        box = self._options.find_box((image.height, image.width), self._shape[:2], row)
        return np.asarray(self._resize(image, box)).reshape(self._shape)

    def _turn_upright(self, image: Any) -> Any:
        turn = _TURNS.get(read_orientation(image)) if self._options.upright else None
        if turn is None:
            return image
        turned = image.transpose(turn)
        turned.info = image.info  # `_count_channels` reads `info`
        return turned

    def _find_boxes(self, heights: Array, widths: Array, rows: Array) -> Any:
        """Return what `EncodedImages.find_boxes` returns."""
        boxes = self._options.boxes
        if boxes is None:
            return find_source_box((heights, widths), self._shape[:2], self._options.short_side)
        return boxes.draw_many(rows, heights, widths)

    def _explain_resize(self, method: str) -> str:
        if self._options.size is None:
            return ""
        height, width = self._options.size
        if self._options.boxes is not None:
            return f", crops random boxes and resizes them to {height} x {width} ({method})"
        crop = ", and crops them at the centre" if self._options.resize == "crop" else ""
        if self._options.short_side is not None:
            crop += f" after the shorter side was scaled to {self._options.short_side}"
        return f" and resizes them to {height} x {width} ({method}){crop}"

    def _validate(self, name: str, image: Any) -> None:
        height, width, channels = self._shape
        image_channels = _count_channels(name, image)
        if self._options.size is None and image.size != (width, height):
            raise SourceError(
                f"{name} is {image.height} x {image.width}, but {self._first_name} is {height} x {width} "
                f"(height x width). Pass size=({height}, {width}) to resize all images."
            )
        if self._options.channels is None and image_channels != channels:
            raise SourceError(
                f"{name} has {image_channels} channels (mode {image.mode}), but {self._first_name} has {channels}. "
                f"Pass channels={channels} to convert all images."
            )


@contextmanager
def open_encoded(name: str, encoded: EncodedImage) -> Iterator[Any]:
    """Open an image and read its header. Raise a `SourceError` for any error of Pillow."""
    try:
        file = io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded
        with Image.open(file, formats=_installed_formats()) as image:
            if _count_pixels(image) > max_pixels():
                raise Image.DecompressionBombError  # up to twice the limit, Pillow itself only warns
            yield image
    except SourceError:
        raise
    except Image.DecompressionBombError as error:
        raise SourceError(
            f"{name} has more pixels than Pillow's safety limit of {Image.MAX_IMAGE_PIXELS}. "
            "Increase PIL.Image.MAX_IMAGE_PIXELS if you trust the file."
        ) from error
    except UnidentifiedImageError as error:
        raise SourceError(
            f"{name} cannot be decoded: its content is damaged, or is not an image of a format that Forebay reads "
            f"({', '.join(_installed_formats())}). Convert it, or write or download it again."
        ) from error
    except Exception as error:
        raise SourceError(f"{name} cannot be decoded: {error}. Write or download it again.") from error


def is_image(data: bytes) -> bool:
    """Return whether Pillow recognises an image."""
    try:
        with open_encoded("", data):
            return True
    except SourceError:
        return False


@contextmanager
def limit_memory(pixels: int) -> Iterator[None]:
    """Let only one thread at a time decode an image of more than `_LARGE_PIXELS`."""
    if pixels <= _LARGE_PIXELS:
        yield
        return
    with _large_image_lock:
        try:
            yield
        finally:
            _return_free_memory()


def _return_free_memory() -> None:
    """Return free memory, which glibc would keep for this thread, to the operating system."""
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _renew_lock() -> None:
    """Replace the lock in a forked process: a thread of the parent may hold it."""
    global _large_image_lock
    _large_image_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def max_pixels() -> float:
    """Return Pillow's limit on the pixels of an image; infinity if it has none."""
    return Image.MAX_IMAGE_PIXELS or math.inf


def read_orientation(image: Any) -> int:
    """Return the EXIF orientation of an open image: 1 (upright or missing) to 8."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # ignore a damaged EXIF block, as image viewers do
        return 1
    return value if isinstance(value, int) and value in _TURNS else 1


def _count_pixels(image: Any) -> int:
    """Return the largest number of pixels that decoding the image allocates at once.

    The tiles of a TIFF file may be larger than the image. Pillow does not limit them.
    """
    pixels = image.width * image.height
    if image.format == "TIFF":
        pixels = max(pixels, image.tag_v2.get(_TILE_WIDTH_TAG, 0) * image.tag_v2.get(_TILE_LENGTH_TAG, 0))
    return int(pixels)


@cache
def _installed_formats() -> tuple[str, ...]:
    """Return the `_FORMATS` of this Pillow version. AVIF is new in version 11.3."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _refuse_long_values(name: str, image: Any) -> None:
    """Raise SourceError if Pillow would drop the lower 8 of 16 bits of each channel.

    Pillow stores the raw mode of PNG and TIFF, such as "RGB;16B", and the largest value of PPM, in `image.tile`.
    """
    for tile in image.tile[:1]:
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        is_long = ";16" in str(arguments[0]) or (image.format == "PPM" and arguments[-1] in range(256, 1 << 16))
        if is_long and image.mode in _CHANNELS:
            raise SourceError(
                f"{name} has 16 bits for each channel, and Pillow would drop the lower 8. Convert it to 8 bits first, "
                "or save its pixels with numpy.save."
            )


def _count_channels(name: str, image: Any) -> int:
    if image.mode not in _CHANNELS:
        raise SourceError(
            f"{name} has pixels of mode {image.mode!r}, which do not fit in 8 bits for each channel. "
            "Convert it first, or save its pixels with numpy.save."
        )
    if "transparency" in image.info and image.mode == "P":
        return 4
    return _CHANNELS[image.mode]
