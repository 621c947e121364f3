"""The byte layout of an object's rows, read from its header.

The supported formats are `.npy`, uncompressed `.npz` and raw records (`.bin`).

Compressed members, and arrays in Fortran order with more than one axis, raise `RangesUnsupportedError`. The caller then
downloads all objects of the source.
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

__all__ = ["ColumnLayout", "ObjectLayout", "RangesUnsupportedError", "find_layout_reader"]


class RangesUnsupportedError(SourceError):
    """The rows of an object cannot be read in byte ranges."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """One column of an object: contiguous records, each with one or more leaves."""

    leaves: tuple[int, ...]  # numbers of the leaves that a record contains
    record: np.dtype[Any]
    offset: int  # byte of the object at which the first record begins
    length: int  # number of records


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """The rows of an object: their number, specs and columns."""

    length: int  # number of rows
    specs: tuple[ArraySpec, ...]
    structure: Structure
    columns: tuple[ColumnLayout, ...]


def find_layout_reader(suffix: str) -> Callable[..., ObjectLayout] | None:
    """Return the function that reads the layout of a file format from an object's header.

    Return None for a format that cannot be read in byte ranges.
    """
    return {".npy": _read_npy_layout, ".npz": _read_npz_layout, ".bin": _read_binary_layout}.get(suffix.lower())


def _read_npy_layout(file: HeaderReads, *, spec: Tree | None = None) -> ObjectLayout:
    header = parse_header(file.read(0, MAX_HEADER_NBYTES), str(file))
    column = _make_array_column(file, str(file), header, leaf=0, start=0)
    structure = match_spec(str(file), [header.row_spec], Structure(None), spec)
    return ObjectLayout(column.length, (header.row_spec,), structure, (column,))


def _read_npz_layout(
    file: HeaderReads, *, spec: Tree | None = None, members: Sequence[str] | None = None
) -> ObjectLayout:
    zip_members = {member.name: member for member in list_members(file)}
    if members is None:
        members = list(zip_members) if spec is None else as_specs(spec)[1].paths
    validate_names(str(file), "member", members, list(zip_members))
    layouts = [_read_member_layout(file, zip_members[name], leaf) for leaf, name in enumerate(members)]
    columns, specs = [column for column, _ in layouts], tuple(spec for _, spec in layouts)
    length = common_length(str(file), [column.length for column in columns], members)
    structure = match_spec(str(file), specs, flatten(dict.fromkeys(members, 0))[1], spec)
    return ObjectLayout(length, specs, structure, tuple(columns))


def _read_binary_layout(
    file: HeaderReads,
    *,
    spec: Tree | None = None,
    byteorder: Literal["little", "big"] = sys.byteorder,
    skip_nbytes: int = 0,
) -> ObjectLayout:
    specs, structure = validate_record_spec(str(file), spec)
    record = record_dtype(specs, byteorder)
    count = count_records(str(file), file.nbytes, record, skip_nbytes)
    # With a single leaf, a record is the leaf itself, as in a .npy file, and not a structure with one field.
    column = ColumnLayout(tuple(range(len(specs))), record if len(specs) > 1 else record[0], skip_nbytes, count)
    return ObjectLayout(count, specs, structure, (column,))


def _read_member_layout(file: HeaderReads, zip_member: ZipMember, leaf: int) -> tuple[ColumnLayout, ArraySpec]:
    name = f"{zip_member.name!r} in {file}"
    if zip_member.is_deflated:
        raise RangesUnsupportedError(f"{name} is compressed")
    header = parse_header(file.read(zip_member.offset, min(zip_member.nbytes, MAX_HEADER_NBYTES)), name)
    validate_member_size(header, name, zip_member)
    return _make_array_column(file, name, header, leaf=leaf, start=zip_member.offset), header.row_spec


def _make_array_column(file: HeaderReads, name: str, header: NpyHeader, *, leaf: int, start: int) -> ColumnLayout:
    if header.order == "F" and len(header.shape) > 1:
        raise RangesUnsupportedError(f"{name} is stored column by column (Fortran order)")
    offset = start + header.nbytes
    needed_nbytes = offset + math.prod(header.shape) * header.dtype.itemsize
    if needed_nbytes > file.nbytes:
        raise SourceError(
            f"{name} is truncated: {header.dtype} rows of shape {header.shape} need {needed_nbytes} bytes, but the "
            f"object has {file.nbytes}. Write or upload it again."
        )
    return ColumnLayout((leaf,), np.dtype((header.dtype, header.shape[1:])), offset, header.shape[0])
