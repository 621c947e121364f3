"""How the rows of sparse matrices reach the consumer: dense, or as values and columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.handoff import SparseHandOff, SparseTensorHandOff
from forebay.core.spec import ArraySpec, Structure, Tree, format_nbytes
from forebay.errors import PipelineError
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.target import Target
from forebay.sources.sparse import MAX_COLUMNS, CsrMatrix, PaddedSparseSource, SparseSource
from forebay.transforms.densify import Densify
from forebay.transforms.ops import Cast, Map, Scale

__all__ = ["SparseBatches", "choose_sparse_transport", "make_sparse_batches"]

# Smallest ratio of the bytes of dense rows to the bytes of values and columns for which Forebay uploads values and
# columns. Below it, the upload saves too little for the additional work: the device scatters the values into rows.
MIN_SAVING = 2
# NumPy dtypes that all frameworks can scatter on a GPU. TensorFlow, for example, scatters small integers on the CPU.
_SCATTERED_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


@dataclass(frozen=True, slots=True)
class SparseBatches:
    """How batches become trees of sparse tensors and dense arrays, for `batch(sparse=True)`."""

    widths: tuple[int | None, ...]  # for each leaf of a row, its number of columns if it is sparse, else None
    structure: Structure  # how these leaves are nested
    specs: tuple[ArraySpec, ...]  # of a row, as if it were dense

    def builder(self, hand_off: SparseTensorHandOff) -> Callable[[Sequence[Any]], Tree]:
        """Return a function that builds the tree of a batch from the framework's arrays."""
        build_tree, widths, to_sparse = self.structure.builder(), self.widths, hand_off.to_sparse

        def build(leaves: Sequence[Any]) -> Tree:
            remaining = iter(leaves)  # a sparse leaf has three arrays: values, columns and counts
            parts = [(next(remaining),) if width is None else (*islice(remaining, 3), width) for width in widths]
            return build_tree([to_sparse(*part) if len(part) > 1 else part[0] for part in parts])

        return build


def make_sparse_batches(pipeline: Pipeline, target: Target) -> tuple[Pipeline, SparseBatches | None]:
    """Return the pipeline with sparse leaves as arrays, and what builds sparse batches.

    A sparse leaf becomes three arrays: values, columns and counts. Without `batch(sparse=True)`, return the same
    pipeline and None. Raise PipelineError if batches cannot be sparse.
    """
    if pipeline.batching is None or not pipeline.batching.sparse:
        return pipeline, None
    source = pipeline.source
    if not isinstance(source, SparseSource):
        raise PipelineError(
            "batch(sparse=True) needs rows directly from a CSR matrix. Pass one to from_arrays(), and do not combine "
            "pipelines or make windows. Or leave out sparse=True."
        )
    if pipeline.padded or pipeline.transforms:
        which = "pad=" if pipeline.padded else str(pipeline.transforms[0])
        raise PipelineError(f"{which} needs dense rows. Leave it out, or leave out batch(sparse=True).")
    if any(isinstance(leaf, CsrMatrix) and leaf.has_duplicates for leaf in source.leaves):
        raise PipelineError("batch(sparse=True) needs a matrix in canonical form. Call matrix.sum_duplicates() first.")
    if target.split is not None:
        raise PipelineError("batch(sparse=True) cannot be divided among several devices. Leave out sparse=True.")
    width = max(filter(None, _widths(source)), default=0)
    if width > MAX_COLUMNS:
        raise PipelineError(
            f"a matrix has {width} columns, but sparse batches have column numbers of 32 bits. Use at most "
            f"{MAX_COLUMNS} columns. For example, hash the column numbers."
        )
    if not isinstance(target.hand_off, SparseTensorHandOff):
        raise PipelineError(f"feed({target.hand_off.name!r}) has no sparse tensors. Leave out batch(sparse=True).")
    specs = tuple(replace(spec, dtype=target.hand_off.framework_dtype(spec.dtype)) for spec in source.specs)
    batches = SparseBatches(_widths(source), source.structure, specs)
    return replace(pipeline, source=PaddedSparseSource(source, counts=True)), batches


def choose_sparse_transport(pipeline: Pipeline, target: Target) -> tuple[Pipeline, tuple[Decision, ...]]:
    """Return a pipeline whose sparse rows become dense on the device, if this saves bytes.

    The rows then cross to the device as values and columns. Otherwise return the same pipeline, whose rows become dense
    on the host. If the target is a device and the rows are sparse, also return the decision with its reason.
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
    why = f"values and columns cross instead of {format_nbytes(dense_nbytes)}; the device makes rows dense"
    decision = Decision("sparse", f"{format_nbytes(padded_nbytes)} a row", why)
    transforms = (Densify(_widths(source), source.structure), *pipeline.transforms)
    return replace(pipeline, source=padded, transforms=transforms), (decision,)


def _widths(source: SparseSource) -> tuple[int | None, ...]:
    return tuple(leaf.shape[1] if isinstance(leaf, CsrMatrix) else None for leaf in source.leaves)


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
            return f"not all frameworks scatter {matrix.dtype} on a device"
        if matrix.has_duplicates:
            return "a matrix is not in canonical form (call matrix.sum_duplicates())"
        if matrix.shape[1] > MAX_COLUMNS:
            return f"a matrix has {matrix.shape[1]} columns, and column numbers that cross have 32 bits"
    dense_nbytes = sum(matrix.shape[1] * matrix.dtype.itemsize for matrix in matrices)
    longest = max(matrix.row_values for matrix in matrices)
    padded_nbytes = sum(spec.nbytes for matrix in matrices for spec in matrix.padded_specs)
    if padded_nbytes * MIN_SAVING > dense_nbytes:
        return f"the longest row has {longest} values, so values and columns would save too little"
    return ""


def _is_truncated(dtype: np.dtype[Any], target: Target) -> bool:
    return dtype.kind in "iu" and target.hand_off.framework_dtype(dtype) != dtype
