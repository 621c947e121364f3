"""The byte layout of an object's rows, read from its header.

Supported are `.npy`, uncompressed `.npz` and raw records.

Other content (compressed members, Fortran order, other formats) raises `RangesUnsupportedError`. Such objects are
downloaded.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError
from forebay.sources.files.columns import common_length, validate_names
from forebay.sources.files.match_spec import match_spec
from forebay.sources.formats.npy import MAX_HEADER_NBYTES, NpyHeader, parse_header
from forebay.sources.formats.npz import validate_member_size
from forebay.sources.formats.raw import count_records, record_dtype, validate_record_spec
from forebay.sources.formats.zip_index import ZipMember, list_members
from forebay.sources.objects.header_reads import HeaderReads

__all__ = ["ColumnLayout", "ObjectLayout", "RangesUnsupportedError", "layout_reader"]


class RangesUnsupportedError(SourceError):
    """The rows of an object cannot be read in byte ranges."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Contiguous records of one or more leaves, from `offset` on."""

    leaves: tuple[int, ...]
    record: np.dtype[Any]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """The rows of an object: their number, specs and columns."""

    length: int
    specs: tuple[ArraySpec, ...]
    structure: Structure
    columns: tuple[ColumnLayout, ...]


def layout_reader(suffix: str) -> Callable[..., ObjectLayout] | None:
    """Return the function that reads the layout of a format.

    Return None if objects of the format must be downloaded.
    """
    return {".npy": _layout_npy, ".npz": _layout_npz, ".bin": _layout_binary}.get(suffix.lower())


def _layout_npy(file: HeaderReads, *, spec: Tree | None = None) -> ObjectLayout:
    header = parse_header(file.read(0, MAX_HEADER_NBYTES), str(file))
    column = _array_column(file, str(file), header, leaf=0, start=0)
    structure = match_spec(str(file), [header.row_spec], Structure(None), spec)
    return ObjectLayout(column.length, (header.row_spec,), structure, (column,))


def _layout_npz(file: HeaderReads, *, spec: Tree | None = None, members: Sequence[str] | None = None) -> ObjectLayout:
    found = {member.name: member for member in list_members(file)}
    if members is None:
        members = list(found) if spec is None else as_specs(spec)[1].paths
    validate_names(str(file), "member", members, list(found))
    layouts = [_layout_member(file, found[name], leaf) for leaf, name in enumerate(members)]
    columns, specs = [column for column, _ in layouts], tuple(spec for _, spec in layouts)
    length = common_length(str(file), [column.length for column in columns], members)
    structure = match_spec(str(file), specs, flatten(dict.fromkeys(members, 0))[1], spec)
    return ObjectLayout(length, specs, structure, tuple(columns))


def _layout_binary(
    file: HeaderReads,
    *,
    spec: Tree | None = None,
    byteorder: Literal["little", "big"] = sys.byteorder,
    skip_nbytes: int = 0,
) -> ObjectLayout:
    specs, structure = validate_record_spec(str(file), spec)
    record = record_dtype(specs, byteorder)
    count = count_records(str(file), file.nbytes, record, skip_nbytes)
    # A single leaf is a plain array, like in a .npy file, and not a field of a record.
    column = ColumnLayout(tuple(range(len(specs))), record if len(specs) > 1 else record[0], skip_nbytes, count)
    return ObjectLayout(count, specs, structure, (column,))


def _layout_member(file: HeaderReads, zipped: ZipMember, leaf: int) -> tuple[ColumnLayout, ArraySpec]:
    name = f"{zipped.name!r} in {file}"
    if zipped.is_deflated:
        raise RangesUnsupportedError(f"{name} is compressed")
    header = parse_header(file.read(zipped.offset, min(zipped.nbytes, MAX_HEADER_NBYTES)), name)
    validate_member_size(header, name, zipped)
    return _array_column(file, name, header, leaf=leaf, start=zipped.offset), header.row_spec


def _array_column(file: HeaderReads, name: str, header: NpyHeader, *, leaf: int, start: int) -> ColumnLayout:
    if header.order == "F" and len(header.shape) > 1:
        raise RangesUnsupportedError(f"{name} is stored column by column (Fortran order)")
    offset = start + header.nbytes
    needed = offset + math.prod(header.shape) * header.dtype.itemsize
    if needed > file.nbytes:
        raise SourceError(
            f"{name} is truncated: {header.dtype} rows of shape {header.shape} need {needed} bytes, but the object has "
            f"{file.nbytes}. Write or upload it again."
        )
    return ColumnLayout((leaf,), np.dtype((header.dtype, header.shape[1:])), offset, header.shape[0])
