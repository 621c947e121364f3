"""`EncodedImages`: the images of a source as encoded bytes, for a device that decodes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.rows import Rows

__all__ = ["EncodedImages", "crop_to_aspect_ratio", "find_source_box", "limit_aspect_ratio"]


@dataclass(frozen=True, slots=True)
class EncodedImages:
    """How a device gets the encoded images of a source and converts them to rows.

    A decoded image has the height, the width and the channels of the leaf's spec.
    """

    leaf: int  # index of the leaf with the images
    # Returns the encoded image of each row; None for an image that only the host may decode, such as a huge image.
    read: Callable[[Rows], list[bytes | None]]
    resizes: bool  # whether to resize images; if False, all images must have the size of the spec
    # Returns top, left, height and width of the parts of images that become rows. The arguments are arrays: heights and
    # widths of the upright images, and the numbers of their rows. None if whole images become rows.
    find_boxes: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]] | None
    upright: bool  # whether to apply the EXIF orientation
    max_pixels: float  # the device decodes only images with at most this many pixels


def find_source_box(
    size: tuple[Any, Any], target: tuple[int, int], short_side: int | None = None
) -> tuple[Any, Any, Any, Any]:
    """Return the largest centred box of an image with the target's aspect ratio.

    The result is (top, left, height, width) of the box in pixels of the image. `size` has the height and the width of
    one image as numbers, or of many images as arrays. With `short_side`, the box has the size of the target after the
    image is scaled until its shorter side has this length.

    >>> tuple(round(float(number), 6) for number in find_source_box((375, 500), (224, 224)))
    (0.0, 62.5, 375.0, 375.0)
    """
    if short_side is None:
        scale = np.maximum(target[0] / size[0], target[1] / size[1])
    else:
        scale = short_side / np.minimum(size[0], size[1])
    height, width = np.minimum(size[0], target[0] / scale), np.minimum(size[1], target[1] / scale)
    return (size[0] - height) / 2, (size[1] - width) / 2, height, width


def crop_to_aspect_ratio(
    size: tuple[int, int], target: tuple[int, ...], short_side: int | None = None
) -> tuple[slice, slice]:
    """Return (slice of pixel rows, slice of pixel columns) of the box of `find_source_box`.

    >>> crop_to_aspect_ratio((375, 500), (224, 224))
    (slice(0, 375, None), slice(63, 437, None))
    """
    covering = max(wanted / length for wanted, length in zip(target, size, strict=True))
    scale = covering if short_side is None else short_side / min(size)
    rows, columns = (_centre(length, wanted / scale) for wanted, length in zip(target, size, strict=True))
    return rows, columns


def _centre(length: int, kept: float) -> slice:
    """Return a slice of about `kept` pixels in the middle of an axis.

    The slice leaves out the same number of pixels at both ends, so that the centre of the image stays the centre.
    """
    margin = max(0, round((length - kept) / 2))
    return slice(margin, max(length - margin, margin + 1))


def limit_aspect_ratio(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of the largest box in an image whose aspect ratio is allowed.

    `ratio` has the smallest and the largest width that is allowed for a height of 1.

    >>> limit_aspect_ratio(100, 400, (0.5, 2.0))
    (100, 200)
    """
    if width / height < ratio[0]:
        return max(1, min(height, round(width / ratio[0]))), width
    if width / height > ratio[1]:
        return height, max(1, min(width, round(height * ratio[1])))
    return height, width
