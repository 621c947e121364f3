"""`fb.color_jitter`: changes brightness, contrast, saturation and hue of each image at random.

The formulas are those of torchvision for float images. The order of the four changes is random for each row. Forebay
computes all changes with float32 numbers, and rounds once after the last change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.array_ops import ArrayOps
from forebay.core.spec import Array
from forebay.errors import PipelineError, SpecError
from forebay.transforms.augmentations import NUMPY_OPS, Augmentation, field_names

__all__ = ["ColorJitter", "color_jitter"]

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NAMES = ("brightness", "contrast", "saturation", "hue")
GRAY_WEIGHTS = (0.2989, 0.587, 0.114)  # of red, green and blue, as in torchvision
CHUNK_VALUES = 1 << 16  # pixel values that the host computes together; as float32, they fit in the cache of a core
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ColorJitter(Augmentation):
    """Changes the colors of images at random."""

    # The ranges of the factors of brightness, contrast and saturation, and of the shift of the hue. None: no change.
    ranges: tuple[Range | None, ...] = (None,) * 4

    @property
    def changes(self) -> tuple[int, ...]:
        """The changes that are enabled, such as CONTRAST."""
        return tuple(change for change, limits in enumerate(self.ranges) if limits is not None)

    @property
    def uniform_count(self) -> int:
        return 2 * len(self.ranges)

    @property
    def buffer_nbytes(self) -> int:
        return 12 * 4  # a change of the hue needs the most: up to twelve float32 arrays

    def parameters(self, uniform: Array, shape: Sequence[int]) -> Array:
        """Return the changes of each row in their random order, then the factor of each."""
        changes = np.asarray(self.changes)
        low, high = np.array([self.ranges[change] for change in self.changes]).T
        factors = low + uniform[:, changes] * (high - low)
        order = np.argsort(uniform[:, len(self.ranges) + changes], axis=1)
        return np.concatenate([changes[order], np.take_along_axis(factors, order, axis=1)], axis=1, dtype=np.float32)

    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        values, brightest, count = ops.to_float(images), self._brightest(ops, images), len(self.changes)
        for stage in range(count):
            change, factor = parameters[:, stage, None, None, None], parameters[:, count + stage, None, None, None]
            blended = values * ops.where(change == HUE, 1 + 0 * factor, factor)
            if CONTRAST in self.changes or SATURATION in self.changes:
                gray = _to_gray(values)
                target = ops.where(change == CONTRAST, ops.mean(gray), ops.where(change == SATURATION, gray, 0 * gray))
                blended = blended + target * (1 - factor)
            blended = ops.clip(blended, 0, brightest)
            if HUE in self.changes and values.shape[3] == 3:
                blended = ops.where(change == HUE, _shift_hue(ops, values, factor), blended)
            values = blended
        return self._rounded(ops, values, images)

    def host_pixels(self, images: Array, parameters: Array) -> Array:
        """Change the colors of a few rows at a time, in the CPU cache."""
        out, count, brightest = np.empty_like(images), len(self.changes), self._brightest(NUMPY_OPS, images)
        chunk_rows = max(1, CHUNK_VALUES // math.prod(images.shape[1:]))
        for start in range(0, len(images), chunk_rows):
            rows = slice(start, start + chunk_rows)
            values = images[rows].astype(np.float32)
            for stage in range(count):
                values = self._apply_stage(values, parameters[rows, stage], parameters[rows, count + stage], brightest)
            out[rows] = self._rounded(NUMPY_OPS, values, images)
        return out

    def _apply_stage(self, values: Array, changes: Array, factors: Array, brightest: float) -> Array:
        """Apply one change to each row. Compute rows with the same change together."""
        for change in self.changes:
            chosen = np.flatnonzero(changes == change)
            if len(chosen) == len(values):
                return _change(values, change, factors, brightest)
            if len(chosen):
                values[chosen] = _change(values[chosen], change, factors[chosen], brightest)
        return values

    def check(self, shape: Sequence[int], dtype: str, name: str) -> None:
        self._refuse_dtype(dtype, name)
        if len(shape) == 3 and shape[2] == 4:
            raise SpecError(
                f"color_jitter needs gray or RGB images, but {name!r} has 4 channels. Remove the last channel."
            )

    def _brightest(self, ops: ArrayOps, images: Any) -> float:
        return 255.0 if ops.dtype_name(images) == "uint8" else 1.0

    def _rounded(self, ops: ArrayOps, values: Any, images: Any) -> Any:
        dtype = np.dtype(ops.dtype_name(images))
        return ops.cast(ops.floor(values + 0.5) if dtype == np.uint8 else values, dtype)

    def __str__(self) -> str:
        limits = zip(NAMES, self.ranges, strict=True)
        return f"color_jitter({', '.join(f'{name}=({r[0]:.4g}, {r[1]:.4g})' for name, r in limits if r is not None)})"


def _change(values: Array, change: int, factors: Array, brightest: float) -> Array:
    """Apply the same kind of change to all rows."""
    factors = factors[:, None, None, None]
    if change == HUE:
        return _shift_hue(NUMPY_OPS, values, factors) if values.shape[3] == 3 else values
    blended: Array = values * factors
    if change != BRIGHTNESS:
        gray = _to_gray(values)
        blended += (NUMPY_OPS.mean(gray) if change == CONTRAST else gray) * (1 - factors)
    return blended.clip(0, brightest, out=blended)


def _to_gray(values: Any) -> Any:
    """Return images with one channel: the luma of RGB images, or gray images unchanged."""
    if values.shape[3] == 1:
        return values
    return sum(values[..., channel : channel + 1] * weight for channel, weight in enumerate(GRAY_WEIGHTS))


def _shift_hue(ops: ArrayOps, values: Any, shift: Any) -> Any:
    """Add `shift` to the hue of RGB images, where 1 is a full circle.

    This function computes in the HSV color space, with the hue in sixths of the circle. Each channel of the result is
    the brightest channel minus a part of the difference between the brightest and the darkest channel.
    """
    red, green, blue = (values[..., channel : channel + 1] for channel in range(3))
    high, low = ops.maximum(ops.maximum(red, green), blue), ops.minimum(ops.minimum(red, green), blue)
    chroma = high - low
    divisor = ops.where(chroma == 0, 1 + 0 * chroma, chroma)
    of_green, of_blue = (blue - red) / divisor + 2, (red - green) / divisor + 4
    hue = ops.where(high == red, (green - blue) / divisor, ops.where(high == green, of_green, of_blue)) + shift * 6
    channels = []
    for offset in (5, 3, 1):
        angle = (hue + offset) * (1 / 6)
        angle = (angle - ops.floor(angle)) * 6
        channels.append(high - chroma * ops.clip(ops.minimum(angle, 4 - angle), 0, 1))
    return ops.concatenate(channels)


def color_jitter(
    brightness: float | Range = 0,
    contrast: float | Range = 0,
    saturation: float | Range = 0,
    hue: float | Range = 0,
    *,
    fields: str | Sequence[str] | None = None,
) -> ColorJitter:
    """Return a transform that changes the colors of each image at random.

    It changes brightness, contrast, saturation and hue, in a random order for each image. Float images must have values
    from 0 to 1. The hue and the saturation of gray images do not change. `fb.flip` describes the random numbers.

    Args:
        brightness: `brightness=0.4` draws the factor from 0.6 to 1.4; a pair is the range itself.
        contrast: The range of the factor, like that of the brightness.
        saturation: The range of the factor, like that of the brightness.
        hue: `hue=0.1` draws the shift from -0.1 to 0.1, where 1 is the full circle; a pair is the range itself.
        fields: The names of the fields with images; by default all uint8, float16 and float32 rows of shape (height,
            width, channels).

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images = np.full((1, 2, 2, 3), 100, np.uint8)
        >>> pipeline = fb.from_arrays({"image": images}).map(fb.color_jitter(brightness=(1.5, 1.5))).batch(1)
        >>> next(pipeline.feed("numpy"))["image"][0, 0, 0].tolist()
        [150, 150, 150]
    """
    factors = zip(NAMES, (brightness, contrast, saturation), strict=False)
    ranges = (*(_factor_range(name, value) for name, value in factors), _hue_range(hue))
    if all(limits is None for limits in ranges):
        raise PipelineError("color_jitter() would change nothing. Pass brightness=, contrast=, saturation= or hue=.")
    return ColorJitter(field_names(fields, "color_jitter"), ranges=ranges)


def _factor_range(name: str, value: Any) -> Range | None:
    low, high = _as_pair(value, centre=1.0)
    if not 0 <= low <= high < np.inf:
        raise PipelineError(
            f"color_jitter({name}={value!r}): pass a number of at least 0, or two numbers of at least 0, with the "
            "smaller number first."
        )
    return None if low == high == 1 else (low, high)


def _hue_range(value: Any) -> Range | None:
    low, high = _as_pair(value, centre=0.0)
    if not -0.5 <= low <= high <= 0.5:
        raise PipelineError(
            f"color_jitter(hue={value!r}): pass a number from 0 to 0.5, or two numbers from -0.5 to 0.5, with the "
            "smaller number first."
        )
    return None if low == high == 0 else (low, high)


def _as_pair(value: Any, centre: float) -> Range:
    """Return the range of a factor; (nan, nan) if the argument is not valid."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            # For a negative number, `low` is above `high`, which the caller refuses. `max` keeps factors at 0 or above.
            return (max(0.0, centre - value) if centre and value >= 0 else centre - value), centre + value
        low, high = map(float, value)
    except (TypeError, ValueError):
        return np.nan, np.nan
    return low, high
