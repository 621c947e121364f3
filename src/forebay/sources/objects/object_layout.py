"""How rows lie in the bytes of an object: `.npy`, stored `.npz` and raw records, told from headers alone.

What cannot be read in ranges (deflated members, columns first, any other format) raises `NotInRangesError`: then
the object is fetched whole.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs, flatten
from forebay.errors import SourceError
from forebay.sources.files.match_spec import fit_spec
from forebay.sources.formats.npy import HEAD_NBYTES, NpyHeader, parse_header
from forebay.sources.formats.npz import check_nbytes, check_present, common_length
from forebay.sources.formats.raw import checked_spec, record_count, record_of
from forebay.sources.formats.zip_index import ZipMember, list_members
from forebay.sources.objects.header_reads import ObjectFile

__all__ = ["Laid", "LaidColumn", "NotInRangesError", "layout_of"]


class NotInRangesError(SourceError):
    """Rows that do not lie whole in the object."""


@dataclass(frozen=True, slots=True)
class LaidColumn:
    """Rows of some leaves, one after the other from `offset` on."""

    leaves: tuple[int, ...]
    record: np.dtype[Any]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Laid:
    """Everything an object says of its rows."""

    length: int
    specs: tuple[ArraySpec, ...]
    structure: Structure
    columns: tuple[LaidColumn, ...]


def layout_of(suffix: str) -> Callable[..., Laid] | None:
    """The function that tells how rows of this format lie in an object; None where they must be fetched whole."""
    return {".npy": _lay_npy, ".npz": _lay_npz, ".bin": _lay_binary}.get(suffix.lower())


def _lay_npy(file: ObjectFile, *, spec: Tree | None = None) -> Laid:
    header = parse_header(file.read(0, HEAD_NBYTES), str(file))
    column = _column(file, str(file), header, leaf=0, start=0)
    structure = fit_spec(str(file), [header.row_spec], Structure(None), spec)
    return Laid(column.length, (header.row_spec,), structure, (column,))


def _lay_npz(file: ObjectFile, *, spec: Tree | None = None, members: Sequence[str] | None = None) -> Laid:
    found = {member.name: member for member in list_members(file)}
    if members is None:
        members = list(found) if spec is None else as_specs(spec)[1].paths
    check_present(str(file), members, list(found))
    laid = [_lay_member(file, found[name], leaf) for leaf, name in enumerate(members)]
    columns, specs = [column for column, _ in laid], tuple(spec for _, spec in laid)
    length = common_length(str(file), [column.length for column in columns], members)
    structure = fit_spec(str(file), specs, flatten(dict.fromkeys(members, 0))[1], spec)
    return Laid(length, specs, structure, tuple(columns))


def _lay_binary(
    file: ObjectFile,
    *,
    spec: Tree | None = None,
    byteorder: Literal["little", "big"] = sys.byteorder,
    skip_nbytes: int = 0,
) -> Laid:
    specs, structure = checked_spec(str(file), spec)
    record = record_of(specs, byteorder)
    count = record_count(str(file), file.nbytes, record, skip_nbytes)
    # A lone leaf lies as one in a .npy does, not as a field.
    column = LaidColumn(tuple(range(len(specs))), record if len(specs) > 1 else record[0], skip_nbytes, count)
    return Laid(count, specs, structure, (column,))


def _lay_member(file: ObjectFile, zipped: ZipMember, leaf: int) -> tuple[LaidColumn, ArraySpec]:
    name = f"{zipped.name!r} in {file}"
    if zipped.deflated:
        raise NotInRangesError(f"{name} is compressed")
    header = parse_header(file.read(zipped.offset, min(zipped.nbytes, HEAD_NBYTES)), name)
    check_nbytes(header, name, zipped)
    return _column(file, name, header, leaf=leaf, start=zipped.offset), header.row_spec


def _column(file: ObjectFile, name: str, header: NpyHeader, *, leaf: int, start: int) -> LaidColumn:
    if header.order == "F" and len(header.shape) > 1:
        raise NotInRangesError(f"{name} is stored column by column (Fortran order)")
    offset = start + header.nbytes
    needed = offset + math.prod(header.shape) * header.dtype.itemsize
    if needed > file.nbytes:
        raise SourceError(
            f"{name} is cut short: {header.dtype} rows of shape {header.shape} need {needed} bytes, the object has "
            f"{file.nbytes}. Write or upload it again."
        )
    return LaidColumn((leaf,), np.dtype((header.dtype, header.shape[1:])), offset, header.shape[0])
