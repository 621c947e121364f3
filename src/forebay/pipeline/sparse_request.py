"""The choice of how the rows of sparse matrices reach a device: as values and columns, or as dense rows."""

from dataclasses import replace
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.handoff import SparseHandOff
from forebay.core.spec import format_nbytes
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.target import Target
from forebay.sources.sparse import CsrMatrix, PaddedSparseSource, SparseSource
from forebay.transforms.densify import Densify
from forebay.transforms.ops import Cast, Map, Scale

__all__ = ["choose_sparse_transport"]

MIN_SAVING = 2  # dense rows have at least this many times the bytes; below, the scatter on the device is not worth it
# NumPy dtypes that all frameworks can scatter. The others are 16-, 32- and 64-bit unsigned integers, and long doubles.
_SCATTERED_DTYPES = frozenset(
    map(np.dtype, ("bool", "int8", "uint8", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128"))
)


def choose_sparse_transport(pipeline: Pipeline, target: Target) -> tuple[Pipeline, tuple[Decision, ...]]:
    """Return a pipeline whose sparse rows cross to the device as values and columns, if this saves bytes.

    Otherwise return the same pipeline, whose rows become dense on the host. For a device, the decision says why.
    """
    source = pipeline.source
    if target.device_handoff is None or not isinstance(source, SparseSource):
        return pipeline, ()
    why_dense = _why_dense(pipeline, source, target)
    dense_nbytes = sum(spec.nbytes for spec in source.specs)
    if why_dense:
        why = f"the host makes rows dense, because {why_dense}"
        return pipeline, (Decision("sparse", f"{format_nbytes(dense_nbytes)} a row", why),)
    padded = PaddedSparseSource(source)
    padded_nbytes = sum(spec.nbytes for spec in padded.specs)
    widths = tuple(leaf.shape[1] if isinstance(leaf, CsrMatrix) else None for leaf in source.leaves)
    why = f"values and columns cross instead of {format_nbytes(dense_nbytes)}; the device makes rows dense"
    decision = Decision("sparse", f"{format_nbytes(padded_nbytes)} a row", why)
    transforms = (Densify(widths, source.structure), *pipeline.transforms)
    return replace(pipeline, source=padded, transforms=transforms), (decision,)


def _why_dense(pipeline: Pipeline, source: SparseSource, target: Target) -> str:
    """Return why the host must make the rows dense, or an empty string."""
    if pipeline.padded:
        return "batches are padded"
    hand_off: Any = target.device_handoff  # mypy finds no class that is both a DeviceHandOff and a SparseHandOff
    if not isinstance(hand_off, SparseHandOff):
        return f"the hand-off {target.hand_off.name!r} has no to_dense()"
    for transform in pipeline.transforms:
        on_device = transform.where == "device" and not (isinstance(transform, Map) and transform.by_row)
        if not on_device and not isinstance(transform, Cast | Scale):
            return f"{transform} runs on the host"
        if not on_device and any(_is_truncated(spec.dtype, target) for spec in source.specs):
            return f"{target.hand_off.name} narrows integers, and {transform} needs all bits"
    matrices = [leaf for leaf in source.leaves if isinstance(leaf, CsrMatrix)]
    for matrix in matrices:
        if matrix.dtype not in _SCATTERED_DTYPES:
            return f"frameworks cannot scatter {matrix.dtype}"
        if matrix.has_duplicates:
            return "a matrix is not in canonical form (call matrix.sum_duplicates())"
    dense_nbytes = sum(matrix.shape[1] * matrix.dtype.itemsize for matrix in matrices)
    longest = max(matrix.row_values for matrix in matrices)
    padded_nbytes = sum(spec.nbytes for matrix in matrices for spec in matrix.padded_specs)
    if padded_nbytes * MIN_SAVING > dense_nbytes:
        return f"the longest row has {longest} values, so values and columns would save too little"
    return ""


def _is_truncated(dtype: np.dtype[Any], target: Target) -> bool:
    return dtype.kind in "iu" and target.hand_off.framework_dtype(dtype) != dtype
