"""Image files: DataLoader with Pillow or torchvision, and plain threads that call simplejpeg."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.measure.bench.model import StartEpoch, Workload

__all__ = ["pillow_loader", "simplejpeg_threads", "torchvision_loader"]


def pillow_loader(work: Workload) -> StartEpoch:
    """Decode and resize with Pillow in the workers of a DataLoader."""
    return _data_loader(work, _load_with_pillow)


def torchvision_loader(work: Workload) -> StartEpoch:
    """Decode and resize with torchvision in the workers of a DataLoader."""
    return _data_loader(work, _load_with_torchvision)


def simplejpeg_threads(work: Workload) -> StartEpoch:
    """Call the libraries of Forebay's decoder in a thread pool, without Forebay. This is the baseline."""
    import cv2
    import simplejpeg

    paths, labels = _list_files(work)
    generator, (height, width) = np.random.default_rng(0), work.shape[:2]
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def load(row: int, out: np.ndarray[Any, Any]) -> None:
        with open(paths[row], "rb") as file:  # noqa: PTH123 - Path.open takes longer
            data = file.read()
        image = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)
        cv2.resize(image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR)

    def epoch() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        order = generator.permutation(len(paths))
        for start in range(0, len(paths), work.batch):
            rows = order[start : start + work.batch]
            images = np.empty((len(rows), *work.shape), np.uint8)
            list(pool.map(load, rows.tolist(), images))
            yield images, labels[rows]

    return epoch


LoadImage: TypeAlias = Callable[[str, tuple[int, ...]], Any]  # (path, shape of the row) -> tensor


class ImageFolderDataset:
    """A dataset of image files."""

    def __init__(self, work: Workload, load: LoadImage) -> None:
        self._paths, self._labels = _list_files(work)
        self._load, self._shape = load, work.shape

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self._load(self._paths[row], self._shape), int(self._labels[row])


def _load_with_pillow(path: str, shape: tuple[int, ...]) -> Any:
    import torch
    from PIL import Image

    with Image.open(path) as image:
        resized = image.convert("RGB").resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized))


def _load_with_torchvision(path: str, shape: tuple[int, ...]) -> Any:
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import resize

    return resize(decode_image(path, ImageReadMode.RGB), list(shape[:2]))


def _data_loader(work: Workload, load: LoadImage) -> StartEpoch:
    from torch.utils.data import DataLoader

    workers = len(os.sched_getaffinity(0))
    dataset = ImageFolderDataset(work, load)
    loader = DataLoader(dataset, batch_size=work.batch, shuffle=True, num_workers=workers, persistent_workers=True)
    return lambda: loader


def _list_files(work: Workload) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return the paths of all images, and the numbers of their folders."""
    paths = sorted(Path(work.path).glob("*/*.jpg"))
    names = sorted({path.parent.name for path in paths})
    return list(map(str, paths)), np.asarray([names.index(path.parent.name) for path in paths])
