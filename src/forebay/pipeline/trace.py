"""What comes out of a pipeline's transforms, found by sending one batch through them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.source import Source
from forebay.core.spec import ArraySpec, Structure
from forebay.order.orders import Positions
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.ops import Map, Transform, apply_all
from forebay.transforms.padding import pad_rows

__all__ = ["Traced", "trace"]


@dataclass(frozen=True, slots=True)
class Traced:
    """Specs after each transform: `steps[i]` is what transform i is given, the last what is handed off."""

    transforms: tuple[Transform, ...]  # maps know now what they must return
    steps: tuple[tuple[tuple[ArraySpec, ...], Structure], ...]
    batch_rows: int

    @property
    def specs(self) -> tuple[ArraySpec, ...]:
        return self.steps[-1][0]

    @property
    def structure(self) -> Structure:
        return self.steps[-1][1]


def trace(pipeline: Pipeline, transforms: Sequence[Transform]) -> Traced:
    """Send a batch through: the first real one where a map may look at it, a row of zeros otherwise."""
    structure = pipeline.structure
    leaves = (
        _sample(pipeline) if any(isinstance(transform, Map) for transform in transforms) else _zeros(pipeline.specs)
    )
    steps, known = [(tuple(pipeline.specs), structure)], []
    for number, transform in enumerate(transforms):
        leaves, structure = apply_all([transform], leaves, structure, (0, 0, 0), first=number)
        known.append(replace(transform, structure=structure) if isinstance(transform, Map) else transform)
        steps.append((tuple(_spec(leaf, pipeline.padded) for leaf in leaves), structure))
    for spec, name in zip(steps[-1][0], structure.paths, strict=True):
        spec.check(name)
    return Traced(tuple(known), tuple(steps), _batch_rows(pipeline))


def with_padding(pipeline: Pipeline) -> tuple[Transform, ...]:
    """The pipeline's transforms; those on rows pad what comes out in different shapes, where batch() says so."""
    pad = pipeline.batching.pad if pipeline.batching else None
    return tuple(
        replace(made, pad=pad) if isinstance(made, Map) and made.by_row else made for made in pipeline.transforms
    )


def _batch_rows(pipeline: Pipeline) -> int:
    if isinstance(pipeline.source, BatchStream):
        return pipeline.source.first_rows
    assert pipeline.batching is not None
    return pipeline.batching.rows


def _sample(pipeline: Pipeline) -> list[Any]:
    """The leaves of the first batch."""
    if isinstance(pipeline.source, BatchStream):
        return pipeline.source.sample()
    assert pipeline.batching is not None
    rows, names, pad = pipeline.batching.rows, pipeline.structure.paths, pipeline.batching.pad
    if pipeline.order is None:
        return pad_rows(pipeline.source.sample(rows), names, pad)  # type: ignore[union-attr]  # a stream, then
    source = pipeline.source
    assert isinstance(source, Source)
    count = min(rows, pipeline.order.length or rows)
    positions: Positions = np.arange(count, dtype=np.int64)
    numbers = pipeline.order.rows(0, positions).astype(np.intp)
    if pad is not None and hasattr(source, "gather_rows"):
        return pad_rows(source.gather_rows(numbers), names, pad)
    out = [spec.empty(count) for spec in source.specs]
    source.gather(numbers, out)
    return list(out)


def _zeros(specs: Sequence[ArraySpec]) -> list[Any]:
    return [np.zeros(spec.batch_shape(1), spec.dtype) for spec in specs]


def _spec(leaf: Any, loose: bool) -> ArraySpec:
    array = np.asarray(leaf)
    return ArraySpec((None,) * (array.ndim - 1) if loose else array.shape[1:], array.dtype)
