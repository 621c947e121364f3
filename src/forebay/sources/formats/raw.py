"""Files of raw records as a source. The user's spec describes a record."""

import sys
from typing import Any, Literal

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.files.mapped import MappedFile, MappedSource, PathName

__all__ = ["count_records", "open_binary", "record_dtype", "validate_record_spec"]


def open_binary(
    path: PathName,
    *,
    spec: Tree | None = None,
    byteorder: Literal["little", "big"] = sys.byteorder,
    skip_nbytes: int = 0,
) -> MappedSource:
    """Open a file of fixed-size records as a source with one row per record.

    A record contains the leaves in the order of the spec, without padding. For example, this reads CIFAR-10 records:
    `open_binary("train.bin", spec={"label": "uint8", "image": ArraySpec((3, 32, 32), "uint8")})`.

    `skip_nbytes` skips a header. `byteorder` is the byte order of the file. Rows are converted to the byte order of
    this machine.
    """
    specs, structure = validate_record_spec(path, spec)
    record = record_dtype(specs, byteorder)
    file = MappedFile(path)
    records = file.array((count_records(path, file.nbytes, record, skip_nbytes),), record, offset=skip_nbytes)
    return MappedSource(file, [records[name] for name in record.names or ()], structure)


def validate_record_spec(path: PathName, spec: Tree | None) -> tuple[tuple[ArraySpec, ...], Structure]:
    """Return the specs and the structure of a record.

    Raise an error if the spec is missing or has no fixed size.
    """
    if spec is None:
        raise SpecError(
            f"{path} is raw bytes without a header. Describe a record with spec=, for example spec='uint16' for token "
            "IDs, or spec={'label': 'uint8', 'image': forebay.ArraySpec((32, 32, 3), 'uint8')}."
        )
    specs, structure = as_specs(spec)
    for user_leaf, leaf_spec, name in zip(flatten(spec)[0], specs, structure.paths, strict=True):
        leaf_spec.check(name)
        if leaf_spec.ragged:
            raise SpecError(
                f"{name!r} is {leaf_spec}, but records of {path} have a fixed size. Replace None by a length."
            )
        _validate_byte_order(user_leaf, name)
    return specs, structure


def _validate_byte_order(user_leaf: Any, name: str) -> None:
    """Raise SpecError if the user's dtype has the byte order of another machine.

    A spec always has the byte order of this machine, so Forebay would ignore the byte order of the user's dtype.
    """
    dtype = user_leaf if isinstance(user_leaf, str | np.dtype) else getattr(user_leaf, "dtype", None)
    if isinstance(dtype, str | np.dtype) and not np.dtype(dtype).isnative:
        raise SpecError(
            f"the dtype {str(dtype)!r} of {name!r} has the byte order of another machine. Use a dtype without a byte "
            "order, and pass byteorder='big' or 'little'."
        )


def record_dtype(specs: tuple[ArraySpec, ...], byteorder: Literal["little", "big"]) -> np.dtype[Any]:
    """Return the dtype of a record: one field per leaf, without padding."""
    if byteorder not in ("little", "big"):
        raise SpecError(f"byteorder={byteorder!r} is unknown. Choose 'little' or 'big'.")
    fields = enumerate(specs)
    return np.dtype([(f"leaf{number}", spec.dtype.newbyteorder(byteorder), spec.shape) for number, spec in fields])


def count_records(path: PathName, nbytes: int, record: np.dtype[Any], skip_nbytes: int) -> int:
    """Return the number of records in a file of `nbytes` bytes.

    Raise an error if the last record is incomplete, or if `skip_nbytes` is negative or longer than the file.
    """
    data_nbytes = nbytes - skip_nbytes
    if record.itemsize == 0:
        raise SpecError(f"a record of {path} has no bytes, so records cannot be counted. Add a leaf to spec=.")
    if skip_nbytes < 0 or data_nbytes < 0 or data_nbytes % record.itemsize:
        raise SourceError(
            f"{path} has {nbytes} bytes. With skip_nbytes={skip_nbytes}, {data_nbytes} remain, which is not a whole "
            f"number of records of {record.itemsize} bytes. The file is truncated, or spec= or skip_nbytes= is wrong. "
            "Correct one of them."
        )
    return data_nbytes // record.itemsize
