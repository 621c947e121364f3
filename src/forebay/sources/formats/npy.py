"""`.npy` files as a source: rows are gathered from the mapped file.

The header may come from an untrusted file. NumPy parses it as a literal, never as a pickle, from a limited number of
bytes. Forebay then compares the claimed array size with the file size.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from forebay.core.parsing import parse_with_retries
from forebay.core.spec import ArraySpec, Structure, Tree
from forebay.errors import SourceError
from forebay.sources.files.held_budget import is_valid_claim
from forebay.sources.files.mapped import MappedFile, MappedSource, PathName
from forebay.sources.files.match_spec import match_spec

__all__ = ["MAX_HEADER_NBYTES", "NpyHeader", "open_npy", "parse_header"]

# Bytes of the literal in a header; NumPy's own limit. A longer literal may take long to parse or exhaust the stack.
_MAX_LITERAL_NBYTES = 10_000
MAX_HEADER_NBYTES = 12 + _MAX_LITERAL_NBYTES  # 12 bytes of magic, version and length, then the literal
# Bytes of the largest row that Forebay accepts in an array without rows, for which the size of the file cannot confirm
# the size of a row.
_MAX_UNCONFIRMED_ROW_NBYTES = 2**30
_PARSERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_npy(path: PathName, *, spec: Tree | None = None) -> MappedSource:
    """Open one `.npy` file without reading its data.

    Rows are along the first axis. A row is a single array.

    With `spec=`, the file must match the spec, and rows get its structure: with
    `spec={"x": ArraySpec((3,), "float32")}` a row is a dict with the field `x`.

    If the file shrinks while a feed reads it, the next gather raises `SourceChangedError`. If it shrinks while a gather
    copies rows, the operating system may end the process (see `forebay.sources.files.mapped`).
    """
    file = MappedFile(path)
    header = parse_header(file.read(0, MAX_HEADER_NBYTES), str(path))
    array = file.array(header.shape, header.dtype, offset=header.nbytes, order=header.order)
    return MappedSource(file, [array], match_spec(path, [header.row_spec], Structure(None), spec))


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The content of an `.npy` header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Literal["C", "F"]
    nbytes: int  # size of the header; the data begins at this offset

    @property
    def row_spec(self) -> ArraySpec:
        # A dtype may have its own shape, such as ("f4", (3,)). Its axes follow the axes of the array.
        return ArraySpec((*self.shape[1:], *self.dtype.shape), self.dtype.base)


def parse_header(head: bytes, name: str, *, has_rows: bool = True) -> NpyHeader:
    """Parse the header in the first bytes of a file.

    Error messages use `name` for the file. If `has_rows` is True, a file of a single value is refused.
    """
    stream = io.BytesIO(head[:MAX_HEADER_NBYTES])
    try:
        version = np.lib.format.read_magic(stream)
        parse = _PARSERS.get(version)
        if parse is None:
            raise ValueError(f"it has format version {version}, and Forebay reads only {sorted(_PARSERS)}")
        shape, fortran_order, dtype = parse_with_retries(partial(_parse_at, parse, stream, stream.tell()))
    except Exception as error:  # for a damaged header, the parser raises anything from struct.error to RecursionError
        raise SourceError(f"{name} cannot be read as .npy: {error}. Write it again with numpy.save.") from error
    header = NpyHeader(shape, dtype, "F" if fortran_order else "C", stream.tell())
    if has_rows and not header.shape:
        raise SourceError(
            f"{name} holds a single value, not rows: it has shape (). Save an array with a row axis. If each file is "
            "one row, write fb.from_arrays(np.array(paths)).map(load).batch(32), with your function load(path)."
        )
    _validate_header(header, name)
    return header


def _parse_at(parse: Callable[..., Any], stream: io.BytesIO, offset: int) -> Any:
    stream.seek(offset)
    return parse(stream, max_header_size=_MAX_LITERAL_NBYTES)


def _validate_header(header: NpyHeader, name: str) -> None:
    if header.dtype.hasobject:
        raise SourceError(
            f"{name} holds Python objects (dtype {header.dtype}). Only pickle can read them, and a pickle can run any "
            "code. Save it with a plain dtype, for example array.astype('float32')."
        )
    # The size of the file cannot confirm the shape of an array without rows or without bytes.
    is_plausible = header.shape[:1] != (0,) or header.row_spec.nbytes <= _MAX_UNCONFIRMED_ROW_NBYTES
    if header.dtype.itemsize == 0 or not is_plausible or not is_valid_claim(header.shape, header.dtype):
        raise SourceError(
            f"{name} is damaged: it claims to hold {header.dtype} of shape {header.shape}. Write or download it again."
        )
