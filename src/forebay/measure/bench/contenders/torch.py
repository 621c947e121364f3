"""PyTorch: DataLoader with rows, texts and image files, and the conversion of one batch."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from forebay.measure.bench.contenders.numpy import convert_ready_batches
from forebay.measure.bench.data import (
    BucketSampler,
    generate_rows,
    make_array,
    make_frame,
    make_series,
    make_texts,
    make_weights,
    map_in_python,
)
from forebay.measure.bench.image_files import ImageFolderDataset, LoadImage, load_with_pillow
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = [
    "TorchBatchDataset",
    "batched_data_loader",
    "bucket_data_loader",
    "choose_rows",
    "data_loader",
    "frame_tensor",
    "from_numpy",
    "iterable_data_loader",
    "pillow_data_loader",
    "sampled_data_loader",
    "torchvision_data_loader",
    "window_data_loader",
]


def data_loader(work: Workload) -> StartEpoch:
    """Load and collate row by row, as in the tutorial of DataLoader."""
    workers = int(work.options.get("workers", 0))
    loader = DataLoader(
        TensorDataset(torch.from_numpy(make_array(work))),
        batch_size=work.batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: loader


def batched_data_loader(work: Workload) -> StartEpoch:
    """Load each batch with one indexing operation, as expert users do.

    A BatchSampler yields the indices of each batch.
    """
    workers, dataset = int(work.options.get("workers", 0)), TorchBatchDataset(work)
    sampler = BatchSampler(RandomSampler(dataset), work.batch, drop_last=False)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader


def sampled_data_loader(work: Workload) -> StartEpoch:
    """Load half of the rows, or rows drawn by weight, with PyTorch's samplers."""
    sampler = BatchSampler(choose_rows(work), work.batch, drop_last=False)
    loader = DataLoader(TorchBatchDataset(work), sampler=sampler, batch_size=None)
    return lambda: loader


def choose_rows(work: Workload) -> Any:
    """Return the sampler of the option "choice": half of the rows, or weighted rows."""
    if work.options["choice"] == "sample":
        return WeightedRandomSampler(make_weights(work), work.rows)
    return SubsetRandomSampler(range(0, work.rows, 2))


def window_data_loader(work: Workload) -> StartEpoch:
    """Load each batch of windows with one indexing operation on an unfolded tensor.

    Unfolding copies nothing, so this operation makes the only copy of a window.
    """
    dataset = TorchWindowDataset(work)
    sampler = BatchSampler(RandomSampler(dataset), work.batch, drop_last=False)
    loader = DataLoader(dataset, sampler=sampler, batch_size=None)
    return lambda: loader


def iterable_data_loader(work: Workload) -> StartEpoch:
    """Load the rows of a Python generator through an IterableDataset."""
    loader = DataLoader(TorchGeneratorDataset(work), batch_size=work.batch)
    return lambda: loader


def bucket_data_loader(work: Workload) -> StartEpoch:
    """Load padded batches of texts with a batch sampler and `pad_sequence`."""
    texts, workers = make_texts(work), int(work.options["workers"])
    rows = torch.split(torch.from_numpy(texts.values), texts.lengths.tolist())
    loader = DataLoader(
        rows,
        batch_sampler=BucketSampler(work),
        collate_fn=_pad_batch,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    return lambda: loader


def pillow_data_loader(work: Workload) -> StartEpoch:
    """Decode and resize with Pillow in the workers of a DataLoader."""
    return _image_data_loader(work, _load_with_pillow)


def torchvision_data_loader(work: Workload) -> StartEpoch:
    """Decode and resize with torchvision in the workers of a DataLoader."""
    return _image_data_loader(work, _load_with_torchvision)


def _image_data_loader(work: Workload, load: LoadImage) -> StartEpoch:
    workers = len(os.sched_getaffinity(0))
    dataset = ImageFolderDataset(work, load)
    loader = DataLoader(dataset, batch_size=work.batch, shuffle=True, num_workers=workers, persistent_workers=True)
    return lambda: loader


def frame_tensor(work: Workload) -> StartEpoch:
    """Convert the frame to one tensor, and index it for each batch."""
    rows = torch.from_numpy(np.ascontiguousarray(make_frame(work)))

    def epoch() -> Iterator[Any]:
        for indices in torch.randperm(work.rows).split(work.batch):
            yield rows[indices]

    return epoch


def from_numpy(work: Workload) -> StartEpoch:
    """Call `torch.from_numpy` on a ready-made batch, the cheapest conversion for a PyTorch user."""
    return convert_ready_batches(work, torch.from_numpy)


class TorchBatchDataset:
    """A dataset whose items are whole batches."""

    def __init__(self, work: Workload) -> None:
        self._rows = torch.from_numpy(make_array(work))
        self._has_map = bool(work.options.get("map"))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, indices: list[int]) -> torch.Tensor:
        batch = self._rows[indices]
        return torch.from_numpy(map_in_python(batch.numpy())) if self._has_map else batch


class TorchWindowDataset:
    """A dataset whose items are batches of windows, with the axes window, row and value."""

    def __init__(self, work: Workload) -> None:
        self._windows = torch.from_numpy(make_series(work)).unfold(0, work.shape[0], 1).transpose(1, 2)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, indices: list[int]) -> torch.Tensor:
        return self._windows[indices]


class TorchGeneratorDataset(IterableDataset[Any]):  # type: ignore[misc]  # torch is untyped here
    """A generator of rows as an IterableDataset."""

    def __init__(self, work: Workload) -> None:
        self._work = work

    def __iter__(self) -> Iterator[Any]:
        return generate_rows(self._work)


def _load_with_pillow(path: str, shape: tuple[int, ...]) -> Any:
    return torch.from_numpy(load_with_pillow(path, shape))


def _load_with_torchvision(path: str, shape: tuple[int, ...]) -> Any:
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import resize

    return resize(decode_image(path, ImageReadMode.RGB), list(shape[:2]))


def _pad_batch(texts: list[Any]) -> Any:
    """Pad the texts of a batch.

    This function is no lambda, so that it can be pickled.
    """
    return pad_sequence(texts, batch_first=True)
