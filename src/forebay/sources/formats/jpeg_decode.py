"""Decoding of JPEG images with simplejpeg (libjpeg-turbo), and resizing with OpenCV, `pixel_resize` or Pillow.

libjpeg-turbo can decode at n/8 of the size. This takes less time for large images, and removes frequencies that the
resized image cannot show. simplejpeg and OpenCV release the GIL. OpenCV resizes fastest, but no extra of Forebay
installs it, because its package contains FFmpeg, whose license is the LGPL. Milliseconds for a 500 x 375 JPEG of 55 KB
to 224 x 224 on one core (`docs/measurements.md#jpeg-decoding`):

decode      simplejpeg 1.30 (at 5/8 of the size: 1.36), OpenCV 1.35, Pillow 2.27 (with `draft`: 1.51)
resize      OpenCV linear 0.10, exact linear 0.56, area 0.81; Pillow box 0.82, bilinear 1.23; all from 5/8 of the size
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.encoded_images import crop_to_aspect_ratio
from forebay.core.spec import Array
from forebay.errors import FrameworkError, SourceError, SpecError
from forebay.sources.formats.encoded_reader import read_small_file
from forebay.sources.formats.image_decode import (
    EncodedImage,
    ImageDecoder,
    limit_memory,
    max_pixels,
    open_encoded,
    read_orientation,
)
from forebay.sources.formats.image_options import Box, ImageOptions
from forebay.sources.formats.pixel_resize import load_resize, resize_into

__all__ = ["JpegDecoder", "make_image_decoder"]

_DECODERS = ("auto", "pillow", "simplejpeg", "opencv", "nvjpeg")
_INSTALLS = {"cv2": "opencv-python-headless", "simplejpeg": "'forebay[images]'"}  # module -> what pip installs
_JPEG_START = b"\xff\xd8"
_COLORSPACES = {1: "GRAY", 3: "RGB", 4: "RGBA"}  # channels of the array -> name in simplejpeg
_INKS = ("CMYK", "YCCK")  # Pillow decodes these: libjpeg-turbo does not invert the colors of Adobe's files
# EXIF orientation -> how to turn an array upright. Orientation 1 is upright.
_TURNS: dict[int, Callable[[Array], Array]] = {
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: image[::-1].swapaxes(0, 1),
    7: lambda image: image[::-1, ::-1].swapaxes(0, 1),
    8: lambda image: image[:, ::-1].swapaxes(0, 1),
}
_SCAN_MARKER, _APP1_MARKER = 0xDA, 0xE1  # second bytes of JPEG markers: of the pixels; of EXIF or XMP data
_MARKERS_WITHOUT_LENGTH = (0x01, *range(0xD0, 0xD9))
# Pixels. An image with a shorter side is decoded at full size. At a smaller scale, the last pixel of a line would cover
# fewer pixels of the original than the other pixels, which is visible in small images.
_MIN_SCALED = 64


def make_image_decoder(name: str, first: EncodedImage, options: ImageOptions, decoder: str) -> ImageDecoder:
    """Return a decoder; for "auto", the first of "opencv", "simplejpeg" and "pillow" that is installed.

    For "nvjpeg", return the same decoder as for "auto": it decodes the images that the device refuses. `first` is the
    first image of the source, and `name` its name in error messages.
    """
    if decoder not in _DECODERS:
        raise SpecError(f"decoder={decoder!r} is unknown. Choose one of {', '.join(map(repr, _DECODERS))}.")
    if decoder == "nvjpeg" and options.interpolation == "nearest" and options.size is not None:
        raise SpecError(
            "decoder='nvjpeg' resizes with a bilinear filter only. Pass decoder='auto' for interpolation='nearest'."
        )
    if decoder == "pillow":
        return ImageDecoder(name, first, options)
    decoder = "auto" if decoder == "nvjpeg" else decoder
    for each in ("opencv", "simplejpeg") if decoder == "auto" else (decoder,):
        try:
            return JpegDecoder(name, first, options, uses_opencv=each == "opencv")
        except ImportError as error:
            module = error.name or "simplejpeg"
            if decoder != "auto":
                raise FrameworkError(
                    f"decoder={decoder!r} needs {module}, which is not installed. Run: pip install "
                    f"{_INSTALLS.get(module, module)}. Or pass decoder='pillow'.",
                    name=module,
                ) from error
    note = "; simplejpeg is not installed. Run pip install 'forebay[images]' to decode JPEG files faster"
    return ImageDecoder(name, first, options, note)


class JpegDecoder(ImageDecoder):
    """Decodes JPEG images with simplejpeg, and all other images with Pillow.

    Pillow also decodes the JPEG images that simplejpeg refuses. The constructor raises ImportError if a package is
    missing.
    """

    def __init__(self, name: str, first: EncodedImage, options: ImageOptions, *, uses_opencv: bool) -> None:
        self._uses_opencv = uses_opencv
        self._import_modules()
        self._simplejpeg_images = 0
        super().__init__(name, first, options)

    @property
    def decision(self) -> Decision:
        library = "Pillow" if load_resize() is None else "resize_pixels.c"
        method = "OpenCV, linear" if self._uses_opencv else f"{library}, bilinear, antialiased"
        resize = self._explain_resize("nearest" if self.takes_nearest else method)
        choice = "opencv" if self._uses_opencv else "simplejpeg"
        may_resize_faster = resize and not self._uses_opencv and not self.takes_nearest
        hint = "; OpenCV resizes faster: pip install opencv-python-headless" if may_resize_faster else ""
        why = f"simplejpeg decodes JPEG images{resize}; Pillow decodes all other images{hint}"
        return Decision("decoder", choice, why)

    def counters(self) -> dict[str, int]:
        return {"simplejpeg_images": self._simplejpeg_images, **super().counters()}

    def decode(self, name: str, encoded: EncodedImage, out: Array, row: int = 0) -> None:
        content = _read_content(encoded)
        is_decoded = isinstance(content, bytes) and content[:2] == _JPEG_START and self._decode_jpeg(content, out, row)
        if not is_decoded:
            super().decode(name, content, out, row)
            return
        with self._lock:
            self._simplejpeg_images += 1

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock and the modules, which cannot be pickled."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_cv2", "_simplejpeg")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._import_modules()

    def _import_modules(self) -> None:
        import simplejpeg

        self._simplejpeg, self._cv2 = simplejpeg, None
        if self._uses_opencv:
            import cv2

            self._cv2 = cv2

    def _decode_jpeg(self, data: bytes, out: Array, row: int) -> bool:
        """Decode a JPEG image into `out`. Return False if Pillow must decode or refuse it."""
        try:
            height, width, colorspace, _ = self._simplejpeg.decode_jpeg_header(data)
            if colorspace in _INKS or height * width > max_pixels():
                return False
            orientation = _read_jpeg_orientation(data) if self._options.upright else 1
            turn = _TURNS.get(orientation)
            if not self._has_valid_shape(height, width, colorspace, is_turned=turn is not None):
                return False
            if self.takes_nearest:
                self._decode_nearest(data, (height, width), turn, out, row)
                return True
            if self._options.boxes is not None:
                self._decode_box(data, (height, width), orientation, out, row)
                return True
            # The image before the turn. If a turn exchanges the axes, its inverse does too, so `turn(out)` has the same
            # shape as this image.
            unturned = out if turn is None else np.empty(turn(out).shape, np.uint8)
            with limit_memory(height * width):
                self._decode_resized(data, (height, width), unturned)
            if turn is not None:
                out[...] = turn(unturned)
        except (ValueError, SourceError):  # simplejpeg raises ValueError for recoverable errors too
            return False
        return True

    def _has_valid_shape(self, height: int, width: int, colorspace: str, *, is_turned: bool) -> bool:
        """Return whether the image has the shape of the first image, or options convert it.

        Without `size=`, return False for an image that must be turned upright: Pillow then decodes it and compares its
        shape.
        """
        if self._options.size is None and (is_turned or (height, width) != self._shape[:2]):
            return False
        return self._options.channels is not None or self._shape[2] == (1 if colorspace == "Gray" else 3)

    def _decode_nearest(
        self, data: bytes, size: tuple[int, int], turn: Callable[[Array], Array] | None, out: Array, row: int
    ) -> None:
        """Decode an image at full size, and write its nearest pixels to `out`.

        Decoding at a smaller scale would average pixels.
        """
        with limit_memory(size[0] * size[1]):
            image = self._simplejpeg.decode_jpeg(data, _COLORSPACES[self._shape[2]])
            out[...] = self._take_nearest(image if turn is None else turn(image), row)

    def _decode_box(self, data: bytes, size: tuple[int, int], orientation: int, out: Array, row: int) -> None:
        """Decode an image at the smallest scale at which its random box is not below the row, and resize the box."""
        upright, target = (size[::-1] if orientation >= 5 else size), (out.shape[0], out.shape[1])
        top, left, height, width = self._options.find_box(upright, target, row) or (0, 0, *upright)
        eighths = _count_eighths(size, max(target[0] / height, target[1] / width))
        scaled = _scale_size(size, eighths)
        with limit_memory(size[0] * size[1]):
            image = self._simplejpeg.decode_jpeg(
                data, _COLORSPACES[self._shape[2]], min_height=scaled[0], min_width=scaled[1]
            )
            image = _TURNS[orientation](image) if orientation in _TURNS else image
            scale = eighths / 8
            self._write_resized(image, out, (top * scale, left * scale, height * scale, width * scale))

    def _decode_resized(self, data: bytes, size: tuple[int, int], out: Array) -> None:
        """Decode an image at the smallest sufficient scale, and resize it into `out`."""
        target, colorspace = out.shape[:2], _COLORSPACES[self._shape[2]]
        height, width = decoded_size = self._decoded_size(size, target)
        if decoded_size == target and self._options.short_side is None and out.flags.c_contiguous:
            self._simplejpeg.decode_jpeg(data, colorspace, buffer=out, min_height=height, min_width=width)
            return
        image = self._simplejpeg.decode_jpeg(data, colorspace, min_height=height, min_width=width)
        if self._options.resize == "crop":
            image = image[crop_to_aspect_ratio(image.shape[:2], target, self._options.short_side)]
        self._write_resized(image, out)

    def _decoded_size(self, size: tuple[int, int], target: tuple[int, ...]) -> tuple[int, int]:
        """Return (height, width) at the smallest scale n/8 that is not below `target`.

        Return the full size if the image itself is smaller than `target`, or has a side shorter than `_MIN_SCALED`.
        """
        if self._options.short_side is not None:
            scale = self._options.short_side / min(size)
        else:
            scale = max(wanted / length for wanted, length in zip(target, size, strict=True))
        return _scale_size(size, _count_eighths(size, scale))

    def _write_resized(self, image: Array, out: Array, box: Box | None = None) -> None:
        """Resize an image, or a part of it, into `out`."""
        if self._cv2 is None:
            resize_into(image, out, box)
            return
        if box is not None:  # OpenCV resizes whole pixels
            top, left, height, width = box
            bottom, right = round(top + height), round(left + width)
            image = image[min(round(top), bottom - 1) : bottom, min(round(left), right - 1) : right]
        if image.shape[2] == 1:  # OpenCV drops an axis of length 1
            image, out = image[..., 0], out[..., 0]
        self._resize_into(self._cv2, image, out)

    def _resize_into(self, cv2: Any, image: Array, out: Array) -> None:
        """Resize an image into `out` with OpenCV.

        If an axis becomes less than half as long, average it first: the linear filter would skip pixels of it.
        """
        height, width = out.shape[:2]
        rows, columns = image.shape[:2]
        if rows > 2 * height or columns > 2 * width:
            averaged = (width if columns > 2 * width else columns, height if rows > 2 * height else rows)
            image = cv2.resize(image, averaged, interpolation=cv2.INTER_AREA)
        resized = cv2.resize(image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR)
        if resized is not out:  # OpenCV allocates a new array if it cannot write into `out`
            out[...] = resized


def _count_eighths(size: tuple[int, int], scale: float) -> int:
    """Return the smallest n for which n/8 is not below `scale`, at most 8; for small images 8."""
    return 8 if min(size) < _MIN_SCALED else min(8, math.ceil(8 * scale))


def _scale_size(size: tuple[int, int], eighths: int) -> tuple[int, int]:
    """Return (height, width) of an image that libjpeg-turbo decodes at so many eighths of its size."""
    return -(-size[0] * eighths // 8), -(-size[1] * eighths // 8)


def _read_content(encoded: EncodedImage) -> EncodedImage:
    """Return the content of an image file; its path if Pillow must read it."""
    if isinstance(encoded, bytes):
        return encoded
    content = read_small_file(encoded)
    return encoded if content is None else content  # Pillow decodes a huge file, and raises an error for others


def _read_jpeg_orientation(data: bytes) -> int:
    """Return the EXIF orientation of a JPEG image.

    Pillow parses EXIF data, but many files have none. So this function first searches for its marker, which takes a
    twentieth of the time.
    """
    position = 2
    while position + 1 < len(data) and data[position] == 0xFF and (marker := data[position + 1]) != _SCAN_MARKER:
        if marker == _APP1_MARKER:
            with open_encoded("", data) as image:
                return read_orientation(image)
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _MARKERS_WITHOUT_LENGTH:
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return 1
