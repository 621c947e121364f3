"""Image files, one a row, decoded by Pillow when the row is asked for.

Opening looks at the first file's header only; every other file is compared with it when its turn comes. Pillow lets go
of the GIL while it decodes and resizes, so threads help.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import FrameworkError, SourceChangedError, SourceError, SpecError
from forebay.sources.base import Array, Region, Rows
from forebay.sources.fit import fit_spec
from forebay.sources.mapped import PathName, check_is_file
from forebay.spec import ArraySpec, Structure, Tree

try:
    from PIL import Image
except ModuleNotFoundError as missing:
    raise FrameworkError(
        "images are decoded by Pillow, which is not installed: pip install 'forebay[images]'.", name="PIL"
    ) from missing

__all__ = ["ImageSource", "open_image"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Channels of the modes with 8 bits each. The others (16-bit, float) hold more than uint8 can.
_CHANNELS = {"1": 1, "L": 1, "P": 3, "RGB": 3, "CMYK": 3, "YCbCr": 3, "LAB": 3, "HSV": 3, "LA": 4, "PA": 4, "RGBA": 4}


class _OpenImage:
    """Opens one image, or (`together`) many as one source: a source a row would cost more than the row."""

    def __call__(
        self,
        path: PathName,
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> "ImageSource":
        """Open one image as a source of one row: uint8, (height, width, channels), a lone array.

        Gray images have 1 channel, colour images 3, those with transparency 4; the first file decides for all, or
        `channels=1`, `3` or `4` converts. `size=(height, width)` resizes (bilinear, antialiased). Of an animation the
        first frame is taken; orientation tags are not applied.
        """
        return self.together([path], spec=spec, size=size, channels=channels)

    def together(
        self,
        paths: Sequence[PathName],
        *,
        spec: Tree | None = None,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
    ) -> "ImageSource":
        """Open many images as one source, a row each; see `open_image`."""
        if channels is not None and channels not in _MODES:
            raise SpecError(f"channels={channels!r} is not known: choose 1 (gray), 3 (RGB) or 4 (RGBA).")
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise SpecError(f"size={size!r} is not a size: pass (height, width).")
        return ImageSource([Path(path) for path in paths], spec=spec, size=size, channels=channels)


open_image = _OpenImage()


class ImageSource:
    """Images of one size and number of channels, a row each."""

    fixed = True  # what lies in a file stays as it is

    def __init__(
        self, paths: Sequence[Path], *, spec: Tree | None, size: tuple[int, int] | None, channels: int | None
    ) -> None:
        self._paths, self._resizes, self._converts = paths, size is not None, channels is not None
        with _opened(paths[0]) as image:
            height, width = size or (image.height, image.width)
            shape = (int(height), int(width), channels or _channels(image, paths[0]))
        self.specs = (ArraySpec(shape, np.uint8),)
        self.structure = fit_spec(paths[0], self.specs, Structure(None), spec)
        self._shape = shape

    def __len__(self) -> int:
        return len(self._paths)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        (images,) = out
        numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
        for place, number in enumerate(numbers):
            self._decode(self._paths[number], images[place])

    def memory(self) -> list[Region]:
        """Nothing: the rows lie in no memory until they are decoded."""
        return []

    def close(self) -> None:
        """Files are opened for one row at a time: nothing to give back."""

    def _decode(self, path: Path, out: Array) -> None:
        if not path.is_file():
            raise SourceChangedError(f"{path} was there when it was opened and is gone now. Make the feed again.")
        height, width, channels = self._shape
        with _opened(path) as image:
            self._check(path, image)
            converted = image if image.mode == _MODES[channels] else image.convert(_MODES[channels])
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            out[...] = np.asarray(converted).reshape(self._shape)

    def _check(self, path: Path, image: Any) -> None:
        height, width, channels = self._shape
        found = _channels(image, path)
        if not self._resizes and image.size != (width, height):
            raise SourceError(
                f"{path} is {image.height} x {image.width}, but {self._paths[0]} is {height} x {width} "
                f"(height x width). Pass size=({height}, {width}) to bring all to one size."
            )
        if not self._converts and found != channels:
            raise SourceError(
                f"{path} has {found} channels (mode {image.mode}), but {self._paths[0]} has {channels}. "
                f"Pass channels={channels} to convert all."
            )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An image whose header has been read; whatever a damaged file makes Pillow raise comes out as one error."""
    check_is_file(path)
    try:
        with Image.open(path) as image:
            _check_pixels(path, image)
            yield image
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{path} cannot be decoded: {error}.") from error


def _check_pixels(path: Path, image: Any) -> None:
    """Pillow only warns of the first doubling past its limit: such an image is refused as well."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise SourceError(
            f"{path} has {image.width} x {image.height} pixels, more than the {limit} that Pillow holds for safe. "
            "Raise PIL.Image.MAX_IMAGE_PIXELS if you trust it."
        )


def _channels(image: Any, path: Path) -> int:
    if image.mode not in _CHANNELS:
        raise SourceError(
            f"{path} has pixels of mode {image.mode!r}, which 8 bits a channel cannot hold. "
            "Convert it first, or save its pixels with numpy.save."
        )
    if "transparency" in image.info and image.mode == "P":
        return 4
    return _CHANNELS[image.mode]
