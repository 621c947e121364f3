"""`.npy` files, mapped: rows are gathered from the file itself.

A header is only a claim. It is parsed by NumPy as a plain literal, never as a pickle, from a bounded number of bytes,
and what it says is compared with the size of the file before anything is done with it.
"""

import io
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from forebay.core.spec import ArraySpec, Structure, Tree
from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile, MappedSource, PathName
from forebay.sources.files.match_spec import fit_spec

__all__ = ["HEAD_NBYTES", "NpyHeader", "open_npy", "parse_header"]

_HEADER_LIMIT = 10_000  # NumPy's own: parsing a longer literal may take long, or the whole stack
HEAD_NBYTES = 12 + _HEADER_LIMIT  # magic, version, length, header
_UNBACKED_NBYTES = 2**30  # the largest row believed of an array that has none
_ADDRESSABLE_NBYTES = 2**62
_PARSERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_npy(path: PathName, *, spec: Tree | None = None) -> MappedSource:
    """Open one `.npy` file without reading its data: rows along its first axis, a lone array.

    With `spec=`, the file is checked against it, and rows come out in its nest: with
    `spec={"x": ArraySpec((3,), "float32")}` the array has a name.

    If the file shrinks while it is fed, the next gather raises `SourceChangedError`; only a
    file that shrinks during the copy of one batch can still end the process (see `forebay.sources.files.mapped`).
    """
    file = MappedFile(path)
    header = parse_header(file.read(0, HEAD_NBYTES), str(path))
    array = file.array(header.shape, header.dtype, offset=header.nbytes, order=header.order)
    return MappedSource(file, [array], fit_spec(path, [header.row_spec], Structure(None), spec))


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an `.npy` file says about itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    nbytes: int  # of the header: the data begins there

    @property
    def row_spec(self) -> ArraySpec:
        # A dtype with a shape of its own, such as ("f4", (3,)), adds to the array's.
        return ArraySpec((*self.shape[1:], *self.dtype.shape), self.dtype.base)


def parse_header(head: bytes, name: str) -> NpyHeader:
    """Read a header from the first bytes of a file; `name` is what errors call it."""
    stream = io.BytesIO(head[:HEAD_NBYTES])
    try:
        version = np.lib.format.read_magic(stream)
        parse = _PARSERS.get(version)
        if parse is None:
            raise ValueError(f"it has format version {version}, and only {sorted(_PARSERS)} hold plain arrays")
        shape, fortran_order, dtype = parse(stream, max_header_size=_HEADER_LIMIT)
    except Exception as error:  # a damaged header makes the parser raise anything from struct.error to RecursionError
        raise SourceError(f"{name} cannot be read as .npy: {error}. Write it again with numpy.save.") from error
    header = NpyHeader(shape, dtype, "F" if fortran_order else "C", stream.tell())
    _check(header, name)
    return header


def _check(header: NpyHeader, name: str) -> None:
    if header.dtype.hasobject:
        raise SourceError(
            f"{name} holds Python objects (dtype {header.dtype}), which only pickle can read, and a pickle can run any "
            "code. Save it with a plain dtype, for example array.astype('float32')."
        )
    if not header.shape:
        raise SourceError(f"{name} holds a single value, not rows: it has shape ().")
    # Without rows or bytes, the size of the file says nothing about the rest of the claim.
    backed = header.shape[0] > 0 or header.row_spec.nbytes <= _UNBACKED_NBYTES
    if header.dtype.itemsize == 0 or not backed or not _is_possible(header):
        raise SourceError(f"{name} claims to hold {header.dtype} of shape {header.shape}: it is damaged.")


def _is_possible(header: NpyHeader) -> bool:
    """Whether NumPy can address such an array: it multiplies the lengths that are not zero, and takes no bools."""
    if not all(type(length) is int and length >= 0 for length in header.shape):
        return False
    return math.prod(length for length in header.shape if length) * header.dtype.itemsize < _ADDRESSABLE_NBYTES
