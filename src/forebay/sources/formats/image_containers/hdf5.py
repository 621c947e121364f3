"""Images in HDF5 files: a dataset whose rows are the bytes of an image.

A row is an array of uint8 of any length (`h5py.vlen_dtype`), a row of a uint8 matrix, which zeros may fill up, or an
opaque value (`numpy.void`). The HDF5 library reads one row at a time.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from forebay.errors import SourceError
from forebay.sources.files.columns import common_length, validate_names
from forebay.sources.files.external_files import external_file_error
from forebay.sources.files.held_budget import MAX_ITEM_NBYTES
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.hdf5 import find_datasets, open_h5_file
from forebay.sources.formats.hdf5_external import find_external_storage, is_in_file
from forebay.sources.formats.hdf5_filters import FilterLimits
from forebay.sources.formats.image_labels import ImageLabel, parse_numbers
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer

__all__ = ["Hdf5Images"]


class Hdf5Images(ImageContainer):
    """The images of one dataset of a file."""

    def __init__(self, path: Path, options: ContainerOptions) -> None:
        self.path, self._mapped = path, MappedFile(path)
        self._max_nbytes = options.budget.max_nbytes
        with open_h5_file(path) as h5_file:
            self._h5_file = h5_file
            self._datasets = find_datasets(path, h5_file, "/", follow_external_links=False)
            if options.column is not None:
                validate_names(path, "dataset", [options.column], [*self._datasets])
            self._name = options.column or self._find_dataset()
            self._dataset = self._validate(self._name)
            if not _has_bytes(self._dataset):
                raise SourceError(
                    f"{self._name!r} in {path} holds {self._dataset.dtype} of shape {self._dataset.shape}, not the "
                    "bytes of images. Store each image as uint8 values (h5py.vlen_dtype('uint8'))."
                )
            self._limits = FilterLimits(self._dataset, options.budget.max_nbytes)
            self._chunk_rows = self._dataset.chunks[0] if self._dataset.chunks else 1

    def __len__(self) -> int:
        return len(self._dataset)

    def describe(self, number: int) -> str:
        return f"row {number} of {self._name!r} in {self.path}"

    def read(self, number: int) -> bytes:
        self._mapped.check_unchanged()
        try:
            self._limits.validate(number // self._chunk_rows * self._chunk_rows)
            value = self._dataset[number]
        except Exception as error:  # for a damaged file, the library raises anything from OSError to RuntimeError
            raise SourceError(
                f"{self.describe(number)} cannot be read: {error}. Write or download the file again. If a filter is "
                "missing, import hdf5plugin first."
            ) from error
        return bytes(value.tobytes())

    def read_labels(self, label: ImageLabel) -> list[Any]:
        if not isinstance(label, str):
            raise SourceError(f"rows of {self.path} have no path. Pass the name of a dataset as label=.")
        validate_names(self.path, "dataset", [label], [*self._datasets])
        dataset = self._validate(label)
        common_length(self.path, [len(self), len(dataset)], [self._name, label])
        is_text = h5py.check_string_dtype(dataset.dtype) is not None
        if len(dataset.shape) != 1 or not (is_text or np.issubdtype(dataset.dtype, np.integer)):
            raise SourceError(
                f"{label!r} in {self.path} holds {dataset.dtype} of shape {dataset.shape}. Labels are integers or "
                "class names, one for each row."
            )
        FilterLimits(dataset, self._max_nbytes).validate(0)
        try:
            return parse_numbers((dataset.asstr(errors="replace") if is_text else dataset)[:].tolist())
        except Exception as error:
            raise SourceError(f"{label!r} in {self.path} cannot be read: {error}. Write the file again.") from error

    def close(self) -> None:
        self._h5_file.close()

    def _find_dataset(self) -> str:
        found = [name for name, dataset in self._datasets.items() if _has_bytes(dataset)]
        if len(found) != 1:
            names = ", ".join(map(repr, self._datasets)) or "none"
            raise SourceError(
                f"{self.path} has {len(found)} datasets that may hold images. Its datasets: {names}. Pass one as "
                "column=."
            )
        return found[0]

    def _validate(self, name: str) -> Any:
        """Return a dataset after the checks of a file from an untrusted source."""
        dataset = self._datasets[name]
        storage = find_external_storage(dataset)
        if storage or not is_in_file(dataset, self._h5_file):
            raise external_file_error(f"{name!r} in {self.path} is {storage or 'a link to another file'}")
        return dataset


def _has_bytes(dataset: Any) -> bool:
    """Return whether the rows of a dataset may be encoded images."""
    if find_external_storage(dataset) or not dataset.shape:
        return False
    if h5py.check_vlen_dtype(dataset.dtype) == np.uint8:
        return len(dataset.shape) == 1
    if dataset.dtype.kind == "V" and dataset.dtype.names is None:
        return len(dataset.shape) == 1 and dataset.dtype.itemsize <= MAX_ITEM_NBYTES
    is_matrix = dataset.dtype == np.uint8 and len(dataset.shape) == 2
    return is_matrix and dataset.shape[1] <= MAX_ITEM_NBYTES
