"""Encoded images to pixels, by Pillow: all of one size and number of channels."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import FrameworkError, SourceError, SpecError

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise FrameworkError(
        "images are decoded by Pillow, which is not installed: pip install 'forebay[images]'.", name="PIL"
    ) from missing

__all__ = ["ImageDecoder"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Channels of the modes with 8 bits each. The others (16-bit, float) hold more than uint8 can.
_CHANNELS = {"1": 1, "L": 1, "P": 3, "RGB": 3, "CMYK": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "LA": 4, "PA": 4, "RGBA": 4}


class ImageDecoder:
    """Decodes images that are all like the first, or are made so by `size` and `channels`.

    An image is a path or an open file; names are what errors call it.
    """

    def __init__(
        self, name: str, first: Path | IO[bytes], *, size: tuple[int, int] | None, channels: int | None
    ) -> None:
        if channels is not None and channels not in _MODES:
            raise SpecError(f"channels={channels!r} is not known: choose 1 (gray), 3 (RGB) or 4 (RGBA).")
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise SpecError(f"size={size!r} is not a size: pass (height, width).")
        self._first, self._resizes, self._converts = name, size is not None, channels is not None
        with _opened(name, first) as image:
            height, width = size or (image.height, image.width)
            self._shape = (int(height), int(width), channels or _channels(name, image))
        self.spec = ArraySpec(self._shape, np.uint8)

    def decode(self, name: str, file: Path | IO[bytes], out: Array) -> None:
        height, width, channels = self._shape
        with _opened(name, file) as image:
            self._check(name, image)
            converted = image if image.mode == _MODES[channels] else image.convert(_MODES[channels])
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            out[...] = np.asarray(converted).reshape(self._shape)

    def _check(self, name: str, image: Any) -> None:
        height, width, channels = self._shape
        found = _channels(name, image)
        if not self._resizes and image.size != (width, height):
            raise SourceError(
                f"{name} is {image.height} x {image.width}, but {self._first} is {height} x {width} "
                f"(height x width). Pass size=({height}, {width}) to bring all to one size."
            )
        if not self._converts and found != channels:
            raise SourceError(
                f"{name} has {found} channels (mode {image.mode}), but {self._first} has {channels}. "
                f"Pass channels={channels} to convert all."
            )


@contextmanager
def _opened(name: str, file: Path | IO[bytes]) -> Iterator[Any]:
    """An image whose header has been read; whatever a damaged file makes Pillow raise comes out as one error."""
    try:
        with Image.open(file) as image:
            _check_pixels(name, image)
            yield image
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{name} cannot be decoded: {error}.") from error


def _check_pixels(name: str, image: Any) -> None:
    """Pillow only warns of the first doubling past its limit: such an image is refused as well."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise SourceError(
            f"{name} has {image.width} x {image.height} pixels, more than the {limit} that Pillow holds for safe. "
            "Raise PIL.Image.MAX_IMAGE_PIXELS if you trust it."
        )


def _channels(name: str, image: Any) -> int:
    if image.mode not in _CHANNELS:
        raise SourceError(
            f"{name} has pixels of mode {image.mode!r}, which 8 bits a channel cannot hold. "
            "Convert it first, or save its pixels with numpy.save."
        )
    if "transparency" in image.info and image.mode == "P":
        return 4
    return _CHANNELS[image.mode]
