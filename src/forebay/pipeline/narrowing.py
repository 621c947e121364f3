"""Fields for which the framework uses a narrower dtype, such as int64 fields in JAX."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.core.decision import Decision
from forebay.core.handoff import HandOff
from forebay.core.rows import row_array
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import PipelineError
from forebay.order.orders import order_chain
from forebay.order.schedule import Cursor
from forebay.pipeline.device_request import can_pull_rows, decodes_on_device
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.spec_inference import TransformSpecs, infer_specs
from forebay.pipeline.target import Target
from forebay.sources.arrays import ArraySource
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Cast, Map

__all__ = ["narrow_as_framework"]

# When a feed starts, Forebay checks all values of an array in memory of up to this many bytes. This takes about 10 ms
# on one core. Of a larger array, and of a source that is no array, it checks only the first rows.
_MAX_CHECKED_NBYTES = 64 << 20
_CHECKED_ROWS = 256  # number of these first rows
# If an array has a value that does not fit, Forebay looks for such values in at most this many rows that the feed
# delivers first.
_MAX_ORDERED_ROWS = 1 << 20


def narrow_as_framework(
    pipeline: Pipeline, target: Target, specs: TransformSpecs
) -> tuple[TransformSpecs, tuple[Decision, ...]]:
    """Return the specs with the framework's dtypes, and a decision if any dtype is narrower.

    If the device pulls or decodes the rows, it narrows them. Otherwise this function adds a cast after the host's last
    transform.
    """
    hand_off, names = target.hand_off, specs.structure.paths
    hand_off.check(specs.specs, names)
    narrowed = _narrowed_dtypes(specs.specs, specs.structure, hand_off)
    if not narrowed:
        return specs, ()
    if len({*names}) < len(names):
        raise PipelineError(f"two fields have the same name ({', '.join(names)}). Rename one of them.")
    choice = ", ".join(f"{name} to {dtype}" for name, dtype in narrowed.items())
    decision = Decision("narrowed", choice, f"{hand_off.name} would narrow it anyway (jax_enable_x64 is off)")
    fills_on_device = can_pull_rows(pipeline, specs.transforms) or decodes_on_device(pipeline, specs.transforms)
    if not any(isinstance(transform, Map) for transform in specs.transforms):
        _check_source(pipeline, narrowed)
    if target.device_handoff is not None and fills_on_device:
        return _with_output_dtypes(specs, narrowed), (decision,)
    checked = infer_specs(pipeline, (*specs.transforms, _CheckedCast(narrowed)))
    return replace(checked, transforms=(*checked.transforms[:-1], Cast(narrowed))), (decision,)


@dataclass(frozen=True, slots=True)
class _CheckedCast(Cast):
    """A cast that also warns about values that do not fit the narrower dtype.

    Forebay applies it only to the batch from which it infers specs. With a map, this is the first batch of the feed.
    """

    def apply(self, leaves: list[Any], structure: Structure, context: BatchContext) -> tuple[list[Any], Structure]:
        assert isinstance(self.fields, dict)
        for leaf, name in zip(leaves, structure.paths, strict=True):
            if name in self.fields and isinstance(leaf, np.ndarray):
                _warn_unless_values_fit(leaf, self.fields[name], name)
        return Cast.apply(self, leaves, structure, context)


def _check_source(pipeline: Pipeline, narrowed: dict[str, np.dtype[Any]]) -> None:
    """Warn if the feed delivers values that do not fit the narrower dtypes.

    Skip streams, and sources that decode or compute their rows, because reading their rows takes too long.
    """
    source = pipeline.source
    if not isinstance(source, AbstractSource) or source.row_by_row:
        return
    for leaf, (name, spec) in enumerate(zip(pipeline.structure.paths, source.specs, strict=True)):
        if name not in narrowed or spec.dtype.kind not in "iu" or None in spec.shape:
            continue
        if isinstance(source, ArraySource) and source.arrays[leaf].nbytes <= _MAX_CHECKED_NBYTES:
            values = source.arrays[leaf]
            if _find_too_large(values, narrowed[name]) is not None and not _delivers_all_rows(pipeline):
                values = values[_first_rows(pipeline, _MAX_ORDERED_ROWS)]
        elif source.memory_extents():
            values = source.gather_leaves([leaf], _first_rows(pipeline, _CHECKED_ROWS))[0]
        else:
            continue
        _warn_unless_values_fit(values, narrowed[name], name)


def _delivers_all_rows(pipeline: Pipeline) -> bool:
    """Return whether each epoch has every row of the source; False if uncertain."""
    order, schedule = pipeline.order, pipeline.schedule
    is_whole = schedule.shard_count == 1 and schedule.batch_limit is None and not schedule.drop_remainder
    assert order is not None
    # Mypy does not know that a source with an order has a length.
    return is_whole and not order.repeats_rows and order.length == len(pipeline.source)  # type: ignore[arg-type]


def _first_rows(pipeline: Pipeline, limit: int) -> Array:
    """Return the row numbers at the first positions of the first epoch.

    Return at most `limit` numbers, and at most those of one pass of a `repeat()`.
    """
    order, schedule = pipeline.order, pipeline.schedule
    assert order is not None
    lengths = [link.length for link in order_chain(order) if link.length is not None]
    batches = -(-min([limit, *lengths]) // schedule.batch_rows)
    group = next(schedule.groups(Cursor(), batches), None)
    if group is None:
        return np.empty(0, np.intp)
    rows: Array = order.rows(schedule.order_epoch(group.cursor), row_array(schedule.positions(group)))
    return rows[:limit]


def _find_too_large(values: Array, dtype: np.dtype[Any]) -> int | None:
    """Return a value that an integer dtype cannot hold; None if all values fit."""
    if values.dtype.kind not in "iu" or dtype.kind not in "iu" or values.size == 0:
        return None
    limits, smallest, largest = np.iinfo(dtype), int(values.min()), int(values.max())
    if limits.min <= smallest and largest <= limits.max:
        return None
    return largest if largest > limits.max else smallest


def _warn_unless_values_fit(values: Array, dtype: np.dtype[Any], name: str) -> None:
    """Warn if an integer dtype cannot hold all values of a field.

    JAX then converts the values that do not fit to other numbers (they wrap around).
    """
    value = _find_too_large(values, dtype)
    if value is None:
        return
    warnings.warn(
        f"{name!r} has the {values.dtype} value {value}, which {dtype} cannot hold: in JAX, which narrows 64-bit "
        "numbers, it wraps around to another number. Call jax.config.update('jax_enable_x64', True) before feed(), or "
        "convert the values, for example with .map(fb.cast('float32')).",
        UserWarning,
        stacklevel=_user_stacklevel(),
    )


def _user_stacklevel() -> int:
    """Return the `stacklevel` with which the caller's warning names the innermost line outside of Forebay."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "forebay":
        frame, level = frame.f_back, level + 1
    return level


def _narrowed_dtypes(specs: Sequence[ArraySpec], structure: Structure, hand_off: HandOff) -> dict[str, np.dtype[Any]]:
    dtypes = {name: hand_off.framework_dtype(spec.dtype) for name, spec in zip(structure.paths, specs, strict=True)}
    return {name: dtypes[name] for name, spec in zip(structure.paths, specs, strict=True) if dtypes[name] != spec.dtype}


def _with_output_dtypes(specs: TransformSpecs, dtypes: dict[str, np.dtype[Any]]) -> TransformSpecs:
    outputs, structure = specs.stages[-1]
    narrowed = tuple(
        replace(spec, dtype=dtypes.get(name, spec.dtype)) for name, spec in zip(structure.paths, outputs, strict=True)
    )
    return replace(specs, stages=(*specs.stages[:-1], (narrowed, structure)))
