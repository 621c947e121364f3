"""Image files: DataLoader, WebDataset, Grain and DALI on the CPU, and plain threads that call simplejpeg."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from forebay.measure.bench.model import StartEpoch, Workload

__all__ = [
    "dali_on_cpu",
    "grain_map_dataset",
    "pillow_loader",
    "simplejpeg_threads",
    "torchvision_loader",
    "webdataset_loader",
]

WINDOW = 1000  # samples that WebDataset shuffles, as in its documentation


def pillow_loader(work: Workload) -> StartEpoch:
    """Decode and resize with Pillow in the workers of a DataLoader."""
    return _data_loader(work, _load_with_pillow)


def torchvision_loader(work: Workload) -> StartEpoch:
    """Decode and resize with torchvision in the workers of a DataLoader."""
    return _data_loader(work, _load_with_torchvision)


def webdataset_loader(work: Workload) -> StartEpoch:
    """Read `.tar` files with WebDataset and its decoder in worker processes; resize with Pillow, and make batches."""
    import webdataset

    shards = sorted(map(str, Path(work.path).glob("*.tar")))
    workers, (height, width) = min(len(os.sched_getaffinity(0)), len(shards)), work.shape[:2]
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(WINDOW).decode("pil")
    rows = samples.to_tuple("jpg", "cls").map_tuple(_ResizeWithPillow(height, width), int)
    loader = webdataset.WebLoader(rows.batched(work.batch), batch_size=None, num_workers=workers)
    return lambda: loader


def grain_map_dataset(work: Workload) -> StartEpoch:
    """Decode and resize with Pillow in the threads of Grain."""
    import grain

    files, threads = ImageFolderDataset(work, _load_array_with_pillow), len(os.sched_getaffinity(0))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=work.batch)  # rows
    dataset = grain.MapDataset.source(files).shuffle(seed=0).to_iter_dataset(options).batch(work.batch)
    return lambda: dataset


def dali_on_cpu(work: Workload) -> StartEpoch:
    """Read, decode and resize with the CPU operators of DALI."""
    from nvidia.dali import fn, pipeline_def, types

    def define() -> Any:
        files, labels = fn.readers.file(file_root=work.path, random_shuffle=True, name="files")
        images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
        return fn.resize(images, size=work.shape[:2], interp_type=types.INTERP_TRIANGULAR), labels

    threads = len(os.sched_getaffinity(0))
    pipeline = pipeline_def(define)(batch_size=work.batch, num_threads=threads, device_id=None, prefetch_queue_depth=3)
    pipeline.build()

    def epoch() -> Iterator[Any]:
        for _ in range(work.batches):
            images, labels = pipeline.run()
            yield images.as_array(), labels.as_array()

    return epoch


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


class _ResizeWithPillow:
    """Resizes an image of Pillow. Unlike a lambda, it can be pickled for the workers."""

    def __init__(self, height: int, width: int) -> None:
        self._height, self._width = height, width

    def __call__(self, image: Any) -> np.ndarray[Any, Any]:
        from PIL import Image

        return np.array(image.convert("RGB").resize((self._width, self._height), Image.Resampling.BILINEAR))


def _load_array_with_pillow(path: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    from PIL import Image

    with Image.open(path) as image:
        return np.array(image.convert("RGB").resize((shape[1], shape[0]), Image.Resampling.BILINEAR))


def _load_with_pillow(path: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(_load_array_with_pillow(path, shape))


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
