"""Images in HDF5 files: each row of a dataset has the bytes of one image.

The dataset is a uint8 matrix whose rows may end with zeros, or it has uint8 arrays of any length (`h5py.vlen_dtype`). A
matrix is read like any other dataset (`open_hdf5`). Arrays of any length are read by the HDF5 library, row by row.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.files.columns import common_length, validate_names
from forebay.sources.files.held_budget import MAX_ITEM_NBYTES, validate_claim
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.hdf5 import find_datasets, open_h5_file, open_hdf5
from forebay.sources.formats.hdf5_external import find_external_storage, is_in_file
from forebay.sources.formats.hdf5_filters import FilterLimits
from forebay.sources.formats.image_labels import ImageLabel, decode_label
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer

__all__ = ["Hdf5Images"]


class Hdf5Images(ImageContainer):
    """The images of one dataset of a file."""

    def __init__(self, path: Path, options: ContainerOptions) -> None:
        self.path, self._mapped, self._budget = path, MappedFile(path), options.budget
        with open_h5_file(path) as h5_file:
            self._h5_file = h5_file
            self._datasets = find_datasets(path, h5_file, "/", follow_external_links=False)
            if options.column is not None:
                validate_names(path, "dataset", [options.column], [*self._datasets])
            self._name = options.column or self._find_dataset()
            dataset = self._validate(self._name)
            if not _has_bytes(dataset):
                raise SourceError(
                    f"{self._name!r} in {path} holds {dataset.dtype} of shape {dataset.shape}, not the bytes of "
                    "images. Store each image as uint8 values (h5py.vlen_dtype('uint8'))."
                )
            self._length = len(dataset)
            self._lists: _ListReader | None = None
            self._matrix: AbstractSource | None = None
            if dataset.dtype.hasobject:
                self._lists = _ListReader(dataset, self._budget.max_nbytes)
            else:
                self._matrix = self._open_column(self._name)
                self.chunk_policy = self._matrix.chunk_policy

    def __len__(self) -> int:
        return self._length

    def describe(self, number: int) -> str:
        return f"row {number} of {self._name!r} in {self.path}"

    def read(self, number: int) -> bytes:
        if self._matrix is not None:
            (row,) = self._matrix.gather_leaves([0], slice(number, number + 1))
            return bytes(row[0].tobytes())
        assert self._lists is not None
        self._mapped.check_unchanged()
        try:
            return self._lists.read(number)
        except Exception as error:  # for a damaged file, the library raises anything from OSError to RuntimeError
            raise SourceError(
                f"{self.describe(number)} cannot be read: {error}. Write or download the file again. If a filter is "
                "missing, import hdf5plugin first."
            ) from error

    def read_labels(self, label: ImageLabel) -> list[Any]:
        if not isinstance(label, str):
            raise SourceError(f"rows of {self.path} have no path. Pass the name of a dataset as label=.")
        validate_names(self.path, "dataset", [label], [*self._datasets])
        dataset = self._validate(label)
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        if len(dataset.shape) != 1 or not (is_text or dataset.dtype.kind in "iub"):
            raise SourceError(
                f"{label!r} in {self.path} holds {dataset.dtype} of shape {dataset.shape}. Choose a dataset with an "
                "integer or a class name for each row as label=."
            )
        common_length(self.path, [len(self), len(dataset)], [self._name, label])
        nbytes = len(dataset) * dataset.dtype.itemsize
        self._budget.validate(f"{label!r} in {self.path} claims {len(dataset)} labels", nbytes)
        if is_text:
            return [decode_label(self.describe(number), text) for number, text in enumerate(self._read_texts(dataset))]
        (labels,) = self._open_column(label).gather_leaves([0], slice(0, len(dataset)))
        return [int(value) for value in labels.tolist()]

    def close(self) -> None:
        if self._matrix is not None:
            self._matrix.close()
        self._h5_file.close()

    def _read_texts(self, dataset: Any) -> list[bytes]:
        limits, step = FilterLimits(dataset, self._budget.max_nbytes), (dataset.chunks or (len(dataset),))[0]
        try:
            for first in range(0, len(dataset), max(1, step)):
                limits.validate(first)
            return [bytes(value) if isinstance(value, bytes) else str(value).encode() for value in dataset[:].tolist()]
        except Exception as error:  # see `read`
            raise SourceError(f"{dataset.name!r} in {self.path} cannot be read: {error}. Write it again.") from error

    def _open_column(self, name: str) -> AbstractSource:
        return open_hdf5(self.path, members=[name], max_held_nbytes=self._budget.cached_nbytes)

    def _find_dataset(self) -> str:
        found = [name for name, dataset in self._datasets.items() if _has_bytes(dataset)]
        if len(found) != 1:
            names = ", ".join(map(repr, self._datasets)) or "none"
            advice = "Pass one as column=" if found else "Store each image as uint8 values (h5py.vlen_dtype('uint8'))"
            raise SourceError(
                f"{self.path} has {len(found)} datasets that may hold images. Its datasets: {names}. {advice}."
            )
        return found[0]

    def _validate(self, name: str) -> Any:
        """Return dataset `name`. Raise an error if it reads other files, or needs too much memory."""
        dataset = self._datasets[name]
        storage = find_external_storage(dataset)
        if storage or not is_in_file(dataset, self._h5_file):
            raise SourceError(
                f"{name!r} in {self.path} is {storage or 'a link to another file'}. from_images() reads no "
                "data in other files. Copy the dataset to this file."
            )
        if not dataset.shape:
            raise SourceError(f"{name!r} in {self.path} is a single value, not rows. Choose another dataset.")
        validate_claim(f"{name!r} in {self.path}", dataset.shape, dataset.dtype)
        unlimited = FilterLimits(dataset, self._budget.max_nbytes).unlimited
        if unlimited:
            raise SourceError(
                f"{name!r} in {self.path} uses the HDF5 filter {unlimited[0]}, which could need any amount of memory. "
                "Write it with another filter, such as Zstandard."
            )
        if dataset.chunks:
            chunk_nbytes = int(np.prod(dataset.chunks, dtype=object)) * dataset.dtype.itemsize
            self._budget.validate(f"{name!r} in {self.path} claims chunks of shape {dataset.chunks}", chunk_nbytes)
        return dataset


class _ListReader:
    """Reads rows of any length with the HDF5 library."""

    def __init__(self, dataset: Any, max_nbytes: int) -> None:
        self._dataset, self._limits = dataset, FilterLimits(dataset, max_nbytes)
        self._chunk_rows = dataset.chunks[0] if dataset.chunks else 0

    def read(self, number: int) -> bytes:
        if self._chunk_rows:
            self._limits.validate(number // self._chunk_rows * self._chunk_rows)
        row: Array = self._dataset[number]
        return bytes(row.tobytes())


def _has_bytes(dataset: Any) -> bool:
    """Return whether the rows of a dataset may be encoded images."""
    if find_external_storage(dataset) or not dataset.shape:
        return False
    if h5py.check_vlen_dtype(dataset.dtype) == np.uint8:
        return len(dataset.shape) == 1
    is_matrix = dataset.dtype == np.uint8 and len(dataset.shape) == 2
    return is_matrix and dataset.shape[1] <= MAX_ITEM_NBYTES
