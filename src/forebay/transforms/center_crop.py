"""`fb.center_crop`: crops the centre of each image, for validation rows and for masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forebay.core.array_ops import ArrayOps
from forebay.core.spec import Array
from forebay.errors import SpecError
from forebay.transforms.augmentations import NUMPY_OPS, Augmentation, field_names
from forebay.transforms.resized_crop import crop_size

__all__ = ["CenterCrop", "center_crop"]


@dataclass(frozen=True, slots=True)
class CenterCrop(Augmentation):
    """Crops the centre of each image, without resizing it."""

    size: tuple[int, int] = (1, 1)  # height and width of the result

    def parameters(self, uniform: Array, shape: Sequence[int]) -> None:
        """Return None, because the box is the same for all rows."""
        return

    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        (height, width), (rows, columns) = self.size, images.shape[1:3]
        top, left = (rows - height) // 2, (columns - width) // 2
        return images[:, top : top + height, left : left + width]

    def host_pixels(self, images: Array, parameters: Any) -> Array:
        cropped: Array = self.pixels(NUMPY_OPS, images, parameters).copy()
        return cropped

    def check(self, shape: Sequence[int], dtype: str, name: str) -> None:
        if shape[0] < self.size[0] or shape[1] < self.size[1]:
            raise SpecError(
                f"{self} is larger than the images of {name!r} with {shape[0]} x {shape[1]} pixels. Crop to a smaller "
                "size, or read larger images, for example with from_images(size=...)."
            )

    def __str__(self) -> str:
        return f"center_crop({self.size[0]} x {self.size[1]})"


def center_crop(size: int | tuple[int, int], *, fields: str | Sequence[str] | None = None) -> CenterCrop:
    """Return a transform that crops each image to (height, width) at its centre.

    It draws no random numbers and does not resize. If two opposite margins differ by one pixel, the smaller margin is
    at the top or on the left. Masks of class numbers keep their values.

    Args:
        size: The side of a square in pixels, or (height, width).
        fields: The names of the fields with images; by default all uint8, float16 and float32 rows of shape (height,
            width, channels).

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images = np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1)
        >>> pipeline = fb.from_arrays({"image": images}).map(fb.center_crop((1, 3))).batch(1)
        >>> next(pipeline.feed("numpy"))["image"].ravel().tolist()
        [11, 12, 13]
    """
    height, width = crop_size(size, "center_crop")
    return CenterCrop(field_names(fields, "center_crop"), size=(height, width))
