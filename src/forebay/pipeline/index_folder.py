"""The folder of `index()`, which stores the results of passes over all rows.

A pass finds the lengths of rows, their labels, or the mask of a filter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from forebay.core.decision import Decision
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.errors import PipelineError, SourceError
from forebay.order.orders import Order
from forebay.pipeline.description import PipelineDescription
from forebay.pipeline.stable_digest import UnstableValueError, identify_if_known, stable_digest

__all__ = ["RowPass", "recall_or_read"]

_FORMAT = 1  # increase it if a new version of Forebay computes other values in the same pass

P = TypeVar("P", bound=PipelineDescription)


@dataclass(frozen=True, slots=True)
class RowPass:
    """A pass over all rows of a fixed order, and the array that it computes."""

    call: str  # the user's call, such as "pack()"
    order: Order
    result: tuple[Any, ...]  # names what the array contains, such as ("lengths", leaves)
    dtype: np.dtype[Any]  # of the array
    shape: tuple[int, ...]  # of the array
    function: Callable[..., Any] | None = None  # the user's function that computes the array, if there is one


def recall_or_read(pipeline: P, row_pass: RowPass, read: Callable[[], Array]) -> tuple[Array, P]:
    """Return the result of a pass, and the pipeline with a decision about it.

    Read the result from the folder of `index()`. If the folder does not have the result, call `read` and store what it
    returns. Without `index()`, only call `read`; the pipeline stays the same.
    """
    folder = pipeline.index_folder
    if folder is None:
        return read(), pipeline
    path = folder.path / f"{_key(pipeline, row_pass, folder.version)}.index"
    found, damage = _recall(path, row_pass)
    if found is not None:
        why = f"read from {folder.path}, so that no row was read"
    else:
        found = read()
        why = f"{damage}read all {row_pass.order.length} rows, {_store(path, found)}"
    noted = replace(folder, decisions=(*folder.decisions, Decision("index", row_pass.call, why)))
    return found, replace(pipeline, index_folder=noted)


def _key(pipeline: PipelineDescription, row_pass: RowPass, version: str | None) -> str:
    """Return a hexadecimal hash that identifies the rows and the result of the pass."""
    source = pipeline.source
    assert isinstance(source, AbstractSource)
    plain = (_FORMAT, repr(row_pass.order.describe()), row_pass.result, str(row_pass.dtype), row_pass.shape)
    stored = len(source), [str(spec) for spec in source.specs], repr(source.structure)
    try:
        if version is not None:
            identity: Any = identify_if_known(source), version, _identify_function(row_pass.function)
        elif source.identify is None:
            raise UnstableValueError(f"the source ({type(source).__name__})")
        else:
            function = stable_digest(row_pass.function, "the function")
            identity = stable_digest(source.identify(), "the source"), function
        return stable_digest((plain, stored, identity), row_pass.call)[:40]
    except (UnstableValueError, SourceError) as error:
        raise PipelineError(
            f"{row_pass.call} after index() needs a hash of the rows and of the function, but there is none for "
            f"{error}. Pass index(..., version='1'), and change the version whenever the rows or the function change."
        ) from None


def _identify_function(function: Callable[..., Any] | None) -> str:
    """Return a stable hash of a function, or else a description of its bytecode.

    With the description, the user's `version` stands for the variables that the function reads.
    """
    try:
        return stable_digest(function, "the function")
    except UnstableValueError:
        code = getattr(function, "__code__", None)
        return repr(type(function)) if code is None else _describe_code(code)


def _describe_code(code: CodeType) -> str:
    return repr((code.co_name, code.co_code, code.co_names, list(map(_describe_constant, code.co_consts))))


def _describe_constant(constant: Any) -> str:
    if isinstance(constant, frozenset):  # its order depends on PYTHONHASHSEED
        return f"frozenset {sorted(map(repr, constant))}"
    return _describe_code(constant) if isinstance(constant, CodeType) else repr(constant)


def _recall(path: Path, row_pass: RowPass) -> tuple[Array | None, str]:
    """Return the stored array; without one, None and the reason if the file is damaged."""
    # Imported here, because only `index()` needs this module.
    from forebay.pipeline.index_file import DamagedArrayError, check_folder, read_array

    try:
        check_folder(path.parent)
        return read_array(path, row_pass.dtype, row_pass.shape), ""
    except DamagedArrayError as error:
        return None, f"{path.name} is damaged ({error}); "
    except OSError as error:
        raise SourceError(
            f"index({str(path.parent)!r}) cannot use the folder: {error.strerror or error}. Pass a folder that only "
            "you can write to."
        ) from error


def _store(path: Path, array: Array) -> str:
    """Write the array. Return a clause that says where it is, or what failed."""
    from forebay.pipeline.index_file import write_array

    try:
        write_array(path, array)
    except OSError as error:
        return f"but did not store the result in {path.parent}: {error.strerror or error}"
    return f"and stored the result in {path.parent}"
