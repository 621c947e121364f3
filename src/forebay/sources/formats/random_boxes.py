"""`RandomBoxes`: which part of an image becomes the row if images are cropped at random while they are decoded.

The number of the row selects the box. In each epoch, a row has another number (`order/epoch_views.py`).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forebay.core.encoded_images import limit_aspect_ratio
from forebay.core.spec import Array

__all__ = ["ROW_VIEWS", "RandomBoxes"]

ROW_VIEWS = 1 << 30  # views of each image; so two epochs have the same boxes with a probability below 1e-9
_ATTEMPTS = 10  # attempts to draw a box that fits in the image, as in `fb.random_resized_crop`
_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # the increment of SplitMix64


@dataclass(frozen=True, slots=True)
class RandomBoxes:
    """Draws boxes as `fb.random_resized_crop` does, for images that may all differ in size."""

    scale: tuple[float, float]  # area of the box, as a share of the image
    ratio: tuple[float, float]  # width / height of the box

    def draw(self, row: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Return top, left, height and width of the box of a row, whose image has this height and width."""
        key = _mix_bits(row * _GOLDEN_GAMMA)
        area, (smallest, largest) = height * width, self.scale
        low, high = _logarithms(self.ratio)
        for attempt in range(_ATTEMPTS):
            box_area = area * (smallest + _uniform(key, attempt) * (largest - smallest))
            ratio = math.exp(low + _uniform(key, _ATTEMPTS + attempt) * (high - low))
            box_height, box_width = round(math.sqrt(box_area / ratio)), round(math.sqrt(box_area * ratio))
            if 0 < box_height <= height and 0 < box_width <= width:
                top = math.floor(_uniform(key, 2 * _ATTEMPTS) * (height - box_height + 1))
                left = math.floor(_uniform(key, 2 * _ATTEMPTS + 1) * (width - box_width + 1))
                return top, left, box_height, box_width
        box_height, box_width = limit_aspect_ratio(height, width, self.ratio)
        return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width

    def draw_many(self, rows: Array, heights: Array, widths: Array) -> tuple[Array, Array, Array, Array]:
        """Return the boxes that `draw` returns for each row, as arrays, in less time.

        NumPy computes its exponential function in another way, so `math.exp` computes the ratios here too.
        """
        keys = _mix_bits_of_all(rows.astype(np.uint64) * np.uint64(_GOLDEN_GAMMA))
        boxes = np.zeros((4, len(rows)), np.int64)
        places, areas = np.arange(len(rows)), (heights * widths).astype(np.float64)
        (smallest, largest), (low, high) = self.scale, _logarithms(self.ratio)
        for attempt in range(_ATTEMPTS):
            box_areas = areas[places] * (smallest + _uniform_of_all(keys[places], attempt) * (largest - smallest))
            exponents = low + _uniform_of_all(keys[places], _ATTEMPTS + attempt) * (high - low)
            ratios = np.array([math.exp(exponent) for exponent in exponents.tolist()])
            box_heights = np.rint(np.sqrt(box_areas / ratios)).astype(np.int64)
            box_widths = np.rint(np.sqrt(box_areas * ratios)).astype(np.int64)
            fits = (
                (box_heights > 0) & (box_heights <= heights[places]) & (box_widths > 0) & (box_widths <= widths[places])
            )
            boxes[2, places[fits]], boxes[3, places[fits]] = box_heights[fits], box_widths[fits]
            places = places[~fits]
            if not len(places):
                break
        boxes[0] = np.floor(_uniform_of_all(keys, 2 * _ATTEMPTS) * (heights - boxes[2] + 1))
        boxes[1] = np.floor(_uniform_of_all(keys, 2 * _ATTEMPTS + 1) * (widths - boxes[3] + 1))
        for place in places.tolist():
            boxes[:, place] = self.draw(int(rows[place]), int(heights[place]), int(widths[place]))
        return boxes[0], boxes[1], boxes[2], boxes[3]


@lru_cache
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    return math.log(ratio[0]), math.log(ratio[1])


def _uniform(key: int, index: int) -> float:
    """Return random number `index` of a row, in [0, 1). `key` contains the mixed bits of the row."""
    return (_mix_bits(key + (index + 1) * _GOLDEN_GAMMA) >> 11) * 2.0**-53


def _uniform_of_all(keys: Array, index: int) -> Array:
    """Return what `_uniform` returns for each key."""
    step = np.uint64((index + 1) * _GOLDEN_GAMMA & _MASK)
    uniform: Array = (_mix_bits_of_all(keys + step) >> np.uint64(11)) * 2.0**-53
    return uniform


def _mix_bits_of_all(words: Array) -> Array:
    """Return what `_mix_bits` returns for each word."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Array = words ^ words >> np.uint64(31)
    return mixed


def _mix_bits(word: int) -> int:
    """Apply the output function of SplitMix64, a bijection of 64 bits."""
    word &= _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31
