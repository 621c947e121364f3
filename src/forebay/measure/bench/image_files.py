"""A dataset of image files, for loaders that call Python for each row."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from forebay.measure.bench.data import list_images
from forebay.measure.bench.model import Workload

__all__ = ["ImageFolderDataset", "LoadImage", "load_with_pillow", "resize_with_pillow"]

LoadImage: TypeAlias = Callable[[str, tuple[int, ...]], Any]  # (path, shape of the row) -> array or tensor


class ImageFolderDataset:
    """A dataset of image files and their labels."""

    def __init__(self, work: Workload, load: LoadImage) -> None:
        self._paths, self._labels = list_images(work)
        self._load, self._shape = load, work.shape

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self._load(self._paths[row], self._shape), int(self._labels[row])


def load_with_pillow(path: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an image file as an array of this shape."""
    from PIL import Image

    with Image.open(path) as image:
        return resize_with_pillow(image, shape)


def resize_with_pillow(image: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Resize an image of Pillow, and return it as an array of this shape."""
    from PIL import Image

    return np.array(image.convert("RGB").resize((shape[1], shape[0]), Image.Resampling.BILINEAR))
