"""Decoding of images with Pillow, to arrays of one shape."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import FrameworkError, SourceError, SpecError

try:
    from PIL import Image, UnidentifiedImageError
except ModuleNotFoundError as missing:
    raise FrameworkError(
        "Pillow, which decodes images, is not installed. Install it: pip install 'forebay[images]'.", name="PIL"
    ) from missing

__all__ = ["ImageDecoder"]

# Formats that Forebay decodes, whatever the suffix of a file. Pillow knows more, but they are rare in datasets, and
# some are dangerous in untrusted files: Pillow starts Ghostscript to decode EPS.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels of the array -> Pillow mode
# Pillow mode -> channels of the array, for modes with at most 8 bits per channel. uint8 cannot hold the others.
_CHANNELS = {"1": 1, "L": 1, "P": 3, "RGB": 3, "CMYK": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "LA": 4, "PA": 4, "RGBA": 4}

_TILE_WIDTH_TAG, _TILE_LENGTH_TAG = 322, 323  # of TIFF


class ImageDecoder:
    """Decodes images to uint8 arrays of one shape: height, width, channels.

    All images must have the size and the channels of the first image, unless `size` or `channels` converts them.

    An image is a path or an open file. `name` is its name in error messages.
    """

    def __init__(
        self, name: str, first: Path | IO[bytes], *, size: tuple[int, int] | None, channels: int | None
    ) -> None:
        if channels is not None and channels not in _MODES:
            raise SpecError(f"channels={channels!r} is unknown. Choose 1 (gray), 3 (RGB) or 4 (RGBA).")
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise SpecError(f"size={size!r} is not a size. Pass (height, width), both at least 1.")
        self._first_name = name
        self._has_size_option, self._has_channels_option = size is not None, channels is not None
        with _open_image(name, first) as image:
            height, width = size or (image.height, image.width)
            self._shape = (int(height), int(width), channels or _count_channels(name, image))
        self.spec = ArraySpec(self._shape, np.uint8)

    def decode(self, name: str, file: Path | IO[bytes], out: Array) -> None:
        """Decode an image into `out`."""
        height, width, channels = self._shape
        with _open_image(name, file) as image:
            self._validate(name, image)
            image.load()
            self._validate(name, image)  # Pillow before 11 rotates a TIFF file with an orientation tag when it loads it
            converted = image if image.mode == _MODES[channels] else image.convert(_MODES[channels])
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            out[...] = np.asarray(converted).reshape(self._shape)

    def _validate(self, name: str, image: Any) -> None:
        height, width, channels = self._shape
        image_channels = _count_channels(name, image)
        if not self._has_size_option and image.size != (width, height):
            raise SourceError(
                f"{name} is {image.height} x {image.width}, but {self._first_name} is {height} x {width} "
                f"(height x width). Pass size=({height}, {width}) to resize all images."
            )
        if not self._has_channels_option and image_channels != channels:
            raise SourceError(
                f"{name} has {image_channels} channels (mode {image.mode}), but {self._first_name} has {channels}. "
                f"Pass channels={channels} to convert all images."
            )


@contextmanager
def _open_image(name: str, file: Path | IO[bytes]) -> Iterator[Any]:
    """Open an image and read its header. Raise a `SourceError` for any error of Pillow."""
    try:
        with Image.open(file, formats=_installed_formats()) as image:
            if _count_pixels(image) > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise Image.DecompressionBombError  # Pillow itself only warns, up to twice the limit
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
    """Return the formats in `_FORMATS` that this version of Pillow knows. AVIF is new in Pillow 11.3."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _count_channels(name: str, image: Any) -> int:
    if image.mode not in _CHANNELS:
        raise SourceError(
            f"{name} has pixels of mode {image.mode!r}, which do not fit in 8 bits for each channel. "
            "Convert it first, or save its pixels with numpy.save."
        )
    if "transparency" in image.info and image.mode == "P":
        return 4
    return _CHANNELS[image.mode]
