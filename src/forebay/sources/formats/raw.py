"""Raw records without a header, mapped: the user says what they look like."""

import sys
from typing import Any, Literal

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError, SpecError
from forebay.sources.files.mapped import MappedFile, MappedSource, PathName

__all__ = ["checked_spec", "open_binary", "record_count", "record_of"]


def open_binary(
    path: PathName,
    *,
    spec: Tree | None = None,
    byteorder: Literal["little", "big"] = sys.byteorder,
    skip_nbytes: int = 0,
) -> MappedSource:
    """Open a file of fixed-size records, one a row, leaf after leaf in the order of the spec, without padding.

    `open_binary("train.bin", spec={"label": "uint8", "image": ArraySpec((32, 32, 3), "uint8")})` reads CIFAR-like
    records. `skip_nbytes` passes over a header. Rows come out in this machine's byte order.
    """
    specs, structure = checked_spec(path, spec)
    record = record_of(specs, byteorder)
    file = MappedFile(path)
    records = file.array((record_count(path, file.nbytes, record, skip_nbytes),), record, offset=skip_nbytes)
    return MappedSource(file, [records[name] for name in record.names or ()], structure)


def checked_spec(path: PathName, spec: Tree | None) -> tuple[tuple[ArraySpec, ...], Structure]:
    """What a record is, if that is said and can be."""
    if spec is None:
        raise SpecError(
            f"{path} is raw bytes, so spec= must say what a record is, for example "
            "spec={'label': 'uint8', 'image': forebay.ArraySpec((32, 32, 3), 'uint8')}."
        )
    specs, structure = as_specs(spec)
    for leaf, row, name in zip(flatten(spec)[0], specs, structure.paths, strict=True):
        row.check(name)
        if row.ragged:
            raise SpecError(f"{name!r} is {row}: the records of {path} need one length each, without None.")
        _check_byte_order(leaf, name)
    return specs, structure


def _check_byte_order(leaf: Any, name: str) -> None:
    """A spec is always in native order: one that says otherwise would be read wrong without a word."""
    dtype = leaf if isinstance(leaf, str | np.dtype) else getattr(leaf, "dtype", None)
    if isinstance(dtype, str | np.dtype) and not np.dtype(dtype).isnative:
        raise SpecError(f"{name!r} has the byte order of another machine: pass byteorder='big' or 'little' instead.")


def record_of(specs: tuple[ArraySpec, ...], byteorder: Literal["little", "big"]) -> np.dtype[Any]:
    """The dtype of a record: leaf after leaf, without padding."""
    if byteorder not in ("little", "big"):
        raise SpecError(f"byteorder={byteorder!r} is neither 'little' nor 'big'.")
    leaves = enumerate(specs)
    return np.dtype([(f"leaf{place}", spec.dtype.newbyteorder(byteorder), spec.shape) for place, spec in leaves])


def record_count(path: PathName, nbytes: int, record: np.dtype[Any], skip_nbytes: int) -> int:
    """How many records there are in so many bytes, if it is a whole number."""
    data_nbytes = nbytes - skip_nbytes
    if record.itemsize == 0:
        raise SpecError(f"a record of {path} has no bytes according to spec=: nothing tells how many there are.")
    if skip_nbytes < 0 or data_nbytes < 0 or data_nbytes % record.itemsize:
        raise SourceError(
            f"{path} has {nbytes} bytes, which less skip_nbytes={skip_nbytes} is not a whole number of "
            f"records of {record.itemsize} bytes: the file is cut short, or spec= does not describe it."
        )
    return data_nbytes // record.itemsize
