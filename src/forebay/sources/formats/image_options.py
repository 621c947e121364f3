"""`ImageOptions`: how images become arrays of one shape."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from forebay.core.encoded_images import find_source_box
from forebay.errors import SpecError
from forebay.sources.formats.random_boxes import RandomBoxes

__all__ = ["Box", "ImageOptions"]

Box: TypeAlias = tuple[float, float, float, float]  # top, left, height and width, in pixels

_CHANNELS = (1, 3, 4)
_RESIZE_MODES = ("stretch", "crop")
_INTERPOLATIONS = ("bilinear", "nearest")


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images become arrays of one shape."""

    size: tuple[int, int] | None = None  # height and width; None: all images must have the size of the first
    channels: int | None = None  # 1, 3 or 4; None: all images must have the channels of the first
    resize: str = "stretch"  # "stretch" changes the aspect ratio; "crop" keeps it, and cuts off both ends of an axis
    upright: bool = False  # whether to turn images upright by their EXIF orientation
    short_side: int | None = None  # for "crop": first scale the shorter side to this length; None: just cover `size`
    boxes: RandomBoxes | None = None  # the random parts of images that become rows, instead of `resize`
    interpolation: str = "bilinear"  # "nearest" copies pixels and averages none, for masks of class numbers

    def __post_init__(self) -> None:
        """Convert a valid `size`, such as a list, to a tuple. `validate` refuses invalid sizes."""
        if _is_size(self.size):
            height, width = self.size  # type: ignore[misc]  # `_is_size` has checked it
            object.__setattr__(self, "size", (int(height), int(width)))

    def find_box(self, size: tuple[int, int], target: tuple[int, int], row: int) -> Box | None:
        """Return top, left, height and width of the part of an upright image that becomes row number `row`.

        `target` is the size of the row. Return None if the whole image becomes the row.
        """
        if self.boxes is not None:
            return self.boxes.draw(row, *size)
        return None if self.resize == "stretch" else find_source_box(size, target, self.short_side)

    def validate(self) -> None:
        """Raise SpecError for an option with an unknown value."""
        if self.channels is not None and (type(self.channels) is not int or self.channels not in _CHANNELS):
            raise SpecError(f"channels={self.channels!r} is unknown. Choose 1 (gray), 3 (RGB) or 4 (RGBA).")
        if self.size is not None and not _is_size(self.size):
            raise SpecError(f"size={self.size!r} is not a size. Pass (height, width), two integers of at least 1.")
        if self.resize not in _RESIZE_MODES:
            raise SpecError(f"resize={self.resize!r} is unknown. Choose 'stretch' or 'crop'.")
        if self.interpolation not in _INTERPOLATIONS:
            raise SpecError(
                f"interpolation={self.interpolation!r} is unknown. Choose 'bilinear', or 'nearest' for masks of class "
                "numbers."
            )
        if self.resize == "crop" and self.size is None:
            raise SpecError("resize='crop' needs a size to crop to. Pass size=(height, width), or leave out resize=.")
        if self.short_side is not None:
            self._validate_short_side(self.short_side)

    def _validate_short_side(self, short_side: Any) -> None:
        if type(short_side) is not int or self.resize != "crop" or self.size is None or short_side < max(self.size):
            raise SpecError(
                f"short_side={short_side!r} does not fit size={self.size!r} and resize={self.resize!r}. Pass an "
                "integer that is at least as large as both numbers of size=, and resize='crop'."
            )


def _is_size(size: Any) -> bool:
    try:
        height, width = size
        if isinstance(height, bool | np.bool_) or isinstance(width, bool | np.bool_):
            return False
        return min(height, width) >= 1 and (int(height), int(width)) == (height, width)
    except (TypeError, ValueError, OverflowError):
        return False
