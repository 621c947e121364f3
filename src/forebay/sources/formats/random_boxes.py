"""`RandomBoxes`: which part of an image becomes the row if images are cropped at random while they are decoded.

The number of the row selects the box. In each epoch, a row has another number (`order/epoch_views.py`).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from forebay.core.encoded_images import limit_aspect_ratio

__all__ = ["ROW_VIEWS", "RandomBoxes"]

ROW_VIEWS = 1 << 30  # views of each image; so two epochs have the same boxes with a probability below 1e-9
_ATTEMPTS = 10  # attempts to draw a box that fits in the image, as in `fb.random_resized_crop`
_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # the increment of SplitMix64


@dataclass(frozen=True, slots=True)
class RandomBoxes:
    """Draws boxes as `fb.random_resized_crop` does, one image at a time, because all images may differ in size."""

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


@lru_cache
def _logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    return math.log(ratio[0]), math.log(ratio[1])


def _uniform(key: int, index: int) -> float:
    """Return random number `index` of a row, in [0, 1). `key` contains the mixed bits of the row."""
    return (_mix_bits(key + (index + 1) * _GOLDEN_GAMMA) >> 11) * 2.0**-53


def _mix_bits(word: int) -> int:
    """Apply the output function of SplitMix64, a bijection of 64 bits."""
    word &= _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31
