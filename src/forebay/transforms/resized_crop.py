"""`fb.random_resized_crop`: crops a random box of each image, and resizes it.

The filter is a triangle. Its half-width is one source pixel or one output pixel, whichever is larger. So the filter is
bilinear if it enlarges the box, and antialiased if it shrinks the box, as in Pillow and in torchvision with
`antialias=True`. A tap is a source pixel that contributes to an output pixel, with its weight.

For uint8, the weights are integers, and all sums are integers below 2**24, which float32 represents exactly. So every
framework and every device computes the same bits, in whatever order it adds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from forebay.core.array_ops import ArrayOps
from forebay.core.encoded_images import limit_aspect_ratio
from forebay.core.spec import Array
from forebay.errors import PipelineError, SpecError
from forebay.transforms.augmentations import NUMPY_OPS, Augmentation, field_names

__all__ = ["RandomResizedCrop", "crop_size", "random_resized_crop"]

DEFAULT_SCALE, DEFAULT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # as in torchvision
# Attempts to draw a box that fits into the image. If all fail, use the largest box with an allowed ratio in the centre.
ATTEMPTS = 10
WEIGHT_SUM = 1 << 13  # sum of the weights of one output pixel
# After the vertical pass, values are multiples of 1/8. Such a value has 11 bits, and its product with a weight 24 bits.
STEPS = 1 << 3
HALF = np.float32(0.5)
TAPS_CACHE = 512  # lengths of boxes for which the host caches the weights; 6 KB for each, for 224 output pixels
MAX_INTEGER = 2**31 - 1  # devices compute weights in 32 bits

_Taps: TypeAlias = list[tuple[Array, Array]]  # for each tap, the source index and the weight of each output pixel


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Augmentation):
    """Crops a random box of each image, and resizes it to `size`."""

    size: tuple[int, int] = (1, 1)  # height and width of the result
    scale: tuple[float, float] = DEFAULT_SCALE  # area of the box, as a share of the image
    ratio: tuple[float, float] = DEFAULT_RATIO  # width / height of the box

    @property
    def uniform_count(self) -> int:
        return 2 * ATTEMPTS + 2

    @property
    def buffer_nbytes(self) -> int:
        return 5 * 4  # `_Buffers` has five float32 arrays

    def parameters(self, uniform: Array, shape: Sequence[int]) -> Array:
        """Return top, left, height and width of the box of each row."""
        height, width = shape[:2]
        heights, widths = self._box_sizes(uniform[:, :ATTEMPTS], uniform[:, ATTEMPTS:-2], height, width)
        fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)
        rows, first = np.arange(len(uniform)), fits.argmax(axis=1)
        found, centred = fits[rows, first], limit_aspect_ratio(height, width, self.ratio)
        box_height = np.where(found, heights[rows, first], centred[0])
        box_width = np.where(found, widths[rows, first], centred[1])
        top = np.where(found, np.floor(uniform[:, -2] * (height - box_height + 1)), (height - box_height) // 2)
        left = np.where(found, np.floor(uniform[:, -1] * (width - box_width + 1)), (width - box_width) // 2)
        return np.stack([top, left, box_height, box_width], axis=1).astype(np.int32)

    def _box_sizes(self, areas: Array, ratios: Array, height: int, width: int) -> tuple[Array, Array]:
        """Return height and width of the boxes of all attempts, which may exceed the image."""
        area = height * width * (self.scale[0] + areas * (self.scale[1] - self.scale[0]))
        low, high = map(math.log, self.ratio)
        ratio = np.exp(low + ratios * (high - low))
        return np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))

    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        is_bytes = ops.dtype_name(images) == "uint8"
        boxes, (height, width) = ops.to_integer(parameters), images.shape[1:3]
        vertical = _filter_taps(ops, boxes[:, 0], boxes[:, 2], height, self.size[0])
        lines = sum(ops.to_float(ops.gather(images, index, 1)) * weight[:, :, None, None] for index, weight in vertical)
        if is_bytes:
            lines = ops.floor(lines * (STEPS / WEIGHT_SUM) + 0.5)
        horizontal = _filter_taps(ops, boxes[:, 1], boxes[:, 3], width, self.size[1])
        pixels = sum(ops.gather(lines, index, 2) * weight[:, None, :, None] for index, weight in horizontal)
        if is_bytes:
            return ops.cast(ops.floor(pixels * (1 / (STEPS * WEIGHT_SUM)) + 0.5), np.dtype(np.uint8))
        return ops.cast(pixels * (1 / WEIGHT_SUM**2), np.dtype(ops.dtype_name(images)))

    def host_pixels(self, images: Array, parameters: Array) -> Array:
        """Crop and resize row by row, in buffers that stay in the CPU cache."""
        out = np.empty((len(images), *self.size, images.shape[3]), images.dtype)
        buffers = _Buffers.of(self.size, images.shape)
        for image, (top, left, height, width), target in zip(images, parameters.tolist(), out, strict=True):
            _resize_box(image[top : top + height, left : left + width], target, buffers)
        return out

    def check(self, shape: Sequence[int], dtype: str, name: str) -> None:
        self._refuse_dtype(dtype, name)
        for source, size in zip(shape[:2], self.size, strict=True):
            # The sum of the weights before they are divided, times WEIGHT_SUM, must fit into a device's integers.
            if 2 * max(source, size) * (max(source / size, 1) + 1) * WEIGHT_SUM > MAX_INTEGER:
                raise SpecError(
                    f"{self} would shrink {name!r} of {shape[0]} x {shape[1]} pixels too much at once. Read smaller "
                    "images, for example with from_images(size=...), or crop to a larger size."
                )

    def __str__(self) -> str:
        ranges = (("scale", self.scale, DEFAULT_SCALE), ("ratio", self.ratio, DEFAULT_RATIO))
        options = [f", {name}=({low:.4g}, {high:.4g})" for name, (low, high), usual in ranges if (low, high) != usual]
        return f"random_resized_crop({self.size[0]} x {self.size[1]}{''.join(options)})"


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Arrays that the host reuses for each row of a batch."""

    box: Array  # the pixels of the box
    lines: Array  # the result of the vertical pass
    lines_product: Array  # one product of the vertical pass
    pixels: Array  # the result of the horizontal pass
    pixels_product: Array  # one product of the horizontal pass

    @classmethod
    def of(cls, size: tuple[int, int], shape: Sequence[int]) -> "_Buffers":
        _, height, width, channels = shape
        lines, pixels = size[0] * width * channels, size[0] * size[1] * channels
        lengths = (height * width * channels, lines, lines, pixels, pixels)
        return cls(*(np.empty(length, np.float32) for length in lengths))


def _resize_box(box: Array, target: Array, buffers: _Buffers) -> None:
    """Resize one box of pixels to the size of `target`.

    The result is that of `RandomResizedCrop.pixels`. This function multiplies the weights by the factors by which
    `pixels` multiplies its sums. These factors are powers of two, so both results have the same bits.
    """
    (height, width, channels), (out_height, out_width) = box.shape, target.shape[:2]
    is_bytes = box.dtype == np.uint8
    values = buffers.box[: box.size].reshape(height, width * channels)
    np.copyto(values.reshape(box.shape), box, casting="unsafe")
    lines = buffers.lines[: out_height * width * channels].reshape(out_height, width * channels)
    _add_lines(values, _scaled_taps(height, out_height, STEPS if is_bytes else 1), lines, buffers.lines_product)
    if is_bytes:
        lines += HALF
        np.floor(lines, out=lines)
    pixels = buffers.pixels[: target.size].reshape(target.shape)
    taps = _scaled_taps(width, out_width, 1 / STEPS if is_bytes else 1)
    _add_columns(lines.reshape(out_height, width, channels), taps, pixels, buffers.pixels_product)
    if is_bytes:
        pixels += HALF
    np.copyto(target, pixels, casting="unsafe")  # rounds toward zero


def _add_lines(source: Array, taps: _Taps, total: Array, product: Array) -> None:
    """Write the weighted sum of lines of `source` to `total`."""
    product = product[: total.size].reshape(total.shape)
    for number, (indices, weights) in enumerate(taps):
        part = product if number else total
        source.take(indices, axis=0, out=part, mode="clip")  # the mode "raise" would need another buffer
        part *= weights[:, None]
        if number:
            total += part


def _add_columns(source: Array, taps: _Taps, total: Array, product: Array) -> None:
    """Write the weighted sum of columns of `source` to `total`."""
    height, width, channels = total.shape
    product = product[: total.size].reshape(total.shape)
    for number, (indices, weights) in enumerate(taps):
        part = product if number else total
        source.take(indices, axis=1, out=part, mode="clip")
        lines = part.reshape(height, width * channels)  # NumPy is several times faster if the last axis is long
        lines *= np.repeat(weights, channels)
        if number:
            total += part


@lru_cache(maxsize=TAPS_CACHE)
def _scaled_taps(length: int, size: int, factor: float) -> _Taps:
    """Return the taps for a box of this length. Their weights have the sum `factor`."""
    taps = _filter_taps(NUMPY_OPS, np.zeros(1, np.int64), np.array([length]), length, size)
    return [(index[0], weight[0] * np.float32(factor / WEIGHT_SUM)) for index, weight in taps]


def _filter_taps(ops: ArrayOps, start: Any, length: Any, source: int, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield for each tap the source index and the weight of each output pixel.

    `start` and `length` are integers: the box of each row along one axis. The distance between the centres of source
    pixel j and output pixel i is |(2j + 1) * size - (2i + 1) * length| / (2 * size). This function computes with the
    numerator of this fraction. The weights of an output pixel are integers with the sum WEIGHT_SUM.
    """
    start, length = start[:, None], length[:, None]
    centre = ops.to_integer(ops.upload(2 * np.arange(size, dtype=np.int32) + 1, start)) * length
    support = ops.clip(length, size) * 2
    first = ops.clip((centre - support - size) // (2 * size) + 1, 0)
    overlaps, total = [], 0
    for tap in range(max(2, math.ceil(2 * source / size))):
        index = first + tap
        inside = ops.to_integer(index < length)
        total = total + inside * ops.clip(support - abs((2 * index + 1) * size - centre), 0)
        overlaps.append((start + ops.minimum(index, length - 1), total))
    previous: Any = 0
    for index, overlap in overlaps:
        share = overlap * WEIGHT_SUM // total  # of this tap and all taps before it, so that the sum is exact
        yield index, ops.to_float(share - previous)
        previous = share


def random_resized_crop(
    size: int | tuple[int, int],
    scale: tuple[float, float] = DEFAULT_SCALE,
    ratio: tuple[float, float] = DEFAULT_RATIO,
    *,
    fields: str | Sequence[str] | None = None,
) -> RandomResizedCrop:
    """Return a transform that crops a random box of each image and resizes it.

    The filter is bilinear and antialiased. All fields of a row use the same random numbers, which `fb.flip` describes.

    Args:
        size: The size of the result: the side of a square in pixels, or (height, width).
        scale: The smallest and the largest area of the box, as a share of the image.
        ratio: The smallest and the largest width / height of the box.
        fields: The names of the fields with images; by default all uint8, float16 and float32 rows of shape (height,
            width, channels).

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images = np.zeros((10, 64, 64, 3), np.uint8)
        >>> pipeline = fb.from_arrays({"image": images}).shuffle(seed=0).map(fb.random_resized_crop(32)).batch(5)
        >>> next(pipeline.feed("numpy"))["image"].shape
        (5, 32, 32, 3)
    """
    height, width = crop_size(size, "random_resized_crop")
    scales = _as_range(scale, "scale")
    if scales[1] > 1:
        raise PipelineError(f"random_resized_crop(scale={scale!r}): a box is at most the image. Pass numbers up to 1.")
    ratios, names = _as_range(ratio, "ratio"), field_names(fields, "random_resized_crop")
    return RandomResizedCrop(names, size=(height, width), scale=scales, ratio=ratios)


def crop_size(size: Any, function: str) -> tuple[int, int]:
    """Return the argument `size` of a crop as (height, width), or raise PipelineError."""
    sides = (size, size) if isinstance(size, int | np.integer) else tuple(size) if isinstance(size, Sequence) else ()
    are_integers = all(isinstance(side, int | np.integer) and not isinstance(side, bool) for side in sides)
    if len(sides) != 2 or not are_integers or min(sides) < 1:
        raise PipelineError(f"{function}(size={size!r}): pass a number of pixels, or (height, width).")
    return int(sides[0]), int(sides[1])


def _as_range(values: Any, name: str) -> tuple[float, float]:
    """Return two numbers above 0 in ascending order, or raise PipelineError."""
    try:
        low, high = map(float, values)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not 0 < low <= high < math.inf:
        raise PipelineError(
            f"random_resized_crop({name}={values!r}): pass two numbers above 0 with the smaller number first, such as "
            f"{'(0.08, 1)' if name == 'scale' else '(3/4, 4/3)'}."
        )
    return low, high
