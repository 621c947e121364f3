"""`EncodedImages`: the images of a source as the bytes of their files, for a device that decodes them."""

from collections.abc import Callable
from dataclasses import dataclass

from forebay.core.rows import Rows

__all__ = ["EncodedImages", "crop_to_aspect_ratio"]


@dataclass(frozen=True, slots=True)
class EncodedImages:
    """How a device reads the images of a source, and how they become rows.

    The rows have the height, the width and the channels of the leaf's spec.
    """

    leaf: int  # the leaf that has the images
    # Returns the bytes of the file of each row; None for a file that only the host may read, such as a huge one.
    read: Callable[[Rows], list[bytes | None]]
    resizes: bool  # if False, all images must have the size of a row
    crops: bool  # whether a resized image keeps its aspect ratio (`crop_to_aspect_ratio`)
    upright: bool  # whether to apply the EXIF orientation
    max_pixels: float  # the host decodes or refuses images with more pixels


def crop_to_aspect_ratio(size: tuple[int, int], target: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the rows and columns in the centre of an image that have the aspect ratio of the target.

    >>> crop_to_aspect_ratio((375, 500), (224, 224))
    (slice(0, 375, None), slice(62, 438, None))
    """
    scale = max(wanted / length for wanted, length in zip(target, size, strict=True))
    rows, columns = (_centre(length, wanted / scale) for wanted, length in zip(target, size, strict=True))
    return rows, columns


def _centre(length: int, kept: float) -> slice:
    """Return the middle `kept` of an axis. Both ends lose as many pixels, so that the image does not move."""
    margin = max(0, round((length - kept) / 2))
    return slice(margin, max(length - margin, margin + 1))
