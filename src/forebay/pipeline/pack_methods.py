"""`pack()`, the pipeline method that puts several texts into one row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, Self, get_args

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.source import AbstractSource
from forebay.core.spec import Array, ArraySpec
from forebay.errors import PipelineError
from forebay.order.choices import consecutive_start
from forebay.order.packing import LongTexts, Packed
from forebay.pipeline.argument_checks import check_count, check_number, refuse_error_limit
from forebay.pipeline.description import PipelineDescription
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.row_lengths import check_lengths, read_lengths, rows_at
from forebay.pipeline.row_methods import RowMethods
from forebay.pipeline.stored_columns import refuse_transforms
from forebay.sources.packed import POSITIONS, SEGMENT_IDS, PackedSource, PackLayout

__all__ = ["PackMethods"]


@dataclass(frozen=True, slots=True)
class PackMethods(RowMethods):
    """A pipeline description with the method `pack`, which returns a new pipeline."""

    @accept_familiar_arguments
    def pack(
        self,
        length: int,
        *,
        field: str | None = None,
        drop: str | Sequence[str] = (),
        pad: Mapping[str, Any] | Any = 0,
        long: LongTexts = "split",
        lengths: Any = None,
        seed: int = 0,
    ) -> Self:
        """Put several texts into each row, so that rows have `length` tokens and little padding.

        A text is a row with one dimension of any length. A packed row is a dict with the fields `tokens`, `segment_ids`
        (1 for the first text of the row, 2 for the next, 0 for padding) and `positions` (0, 1, ... within each text).
        If texts are dicts, a packed row has all their fields under their own names. All fields of one text must have
        the same length.

        Which texts share a row depends only on the lengths and the options, and is the same in every epoch. To change
        the order of the packed rows in each epoch, call `shuffle()` after `pack()`. Empty texts are left out.

        Args:
            length: The number of tokens of a packed row.
            field: The field that gives the length of a text; by default the first.
            drop: Fields to leave out. Leave out fields without one value per token, such as a label of a text.
            pad: The value of padding, or a dict with a value for each field.
            long: What happens to texts with more than `length` tokens. `"split"` cuts them and keeps every token,
                `"truncate"` drops their end, and `"error"` refuses them.
            lengths: The length of each text, if you know it. Otherwise Forebay asks the source, or reads all rows once.
            seed: Another seed puts other texts together.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> texts = [np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7, 8, 9])]
            >>> batch = next(fb.from_source(texts).pack(5).batch(2).feed("numpy"))
            >>> sorted(batch["tokens"].tolist())
            [[1, 2, 3, 4, 5], [6, 7, 8, 9, 0]]
            >>> sorted(batch["segment_ids"].tolist()), sorted(batch["positions"].tolist())
            ([[1, 1, 1, 1, 0], [1, 1, 1, 2, 2]], [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]])
        """
        length, seed = check_count(length, "pack({})"), check_number(seed, "pack(seed={})")
        if length >= 2**31:
            raise PipelineError(f"pack({length}): pass a length below {2**31}, because positions have 32 bits.")
        if long not in get_args(LongTexts):
            raise PipelineError(f"pack(long={long!r}) is unknown: choose 'split', 'truncate' or 'error'.")
        order = self._fixed_order("pack")
        refuse_transforms(self, "pack()")
        assert order.length is not None
        assert isinstance(self.source, AbstractSource)
        refuse_error_limit(self.source, "pack")
        leaves = _choose_leaves(self, field, drop)
        layout = _make_layout(self, length, long, leaves, pad)
        known = None if lengths is None else check_lengths(lengths, order.length, "pack(lengths=...)")
        (text_lengths, *_), pipeline = (
            read_lengths(self, order, leaves[:1], "pack()") if known is None else ([known], self)
        )
        _check_texts(text_lengths, length, long)
        with ProgressLine(f"pack() packs {order.length:,} texts into rows of {length} tokens"):
            packed = Packed.of(order, text_lengths, length, long=long, seed=seed)
        return replace(pipeline, source=_make_source(self, packed, layout), order=packed, file_recipe=None)


def _choose_leaves(pipeline: PipelineDescription, field: str | None, drop: str | Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the leaves to pack; the first leaf gives the lengths."""
    structure = pipeline.structure
    is_flat = structure.kind is dict and all(child.kind is None for child in structure.children)
    if structure.kind is not None and not is_flat:
        raise PipelineError(
            f"pack() needs rows that are one array or a dict of arrays, but the first row is a "
            f"{structure.kind.__name__} with the parts {', '.join(structure.paths)}. "
            "Make a dict of arrays without nested parts."
        )
    names = structure.paths
    if not isinstance(drop, Iterable):
        raise PipelineError(f"pack(drop={drop!r}): pass the name of a field, or a list of names.")
    dropped = [drop] if isinstance(drop, str) else list(drop)
    for name in [*dropped, *([] if field is None else [field])]:
        if structure.kind is None or name not in names:
            raise PipelineError(f"pack() found no field {name!r} in rows with {', '.join(names)}. Name one of these.")
    chosen = [leaf for leaf, name in enumerate(names) if name not in dropped]
    if not chosen or field in dropped:
        raise PipelineError(f"pack(drop={drop!r}) leaves no field with tokens. Keep at least one.")
    if field is not None:
        chosen.sort(key=lambda leaf: names[leaf] != field)
    for leaf in chosen:
        _check_leaf(names[leaf], pipeline.specs[leaf], is_single=len(names) == 1)
    return tuple(chosen)


def _check_leaf(name: str, spec: ArraySpec, *, is_single: bool) -> None:
    if len(spec.shape) != 1:
        hint = "" if is_single else f", or leave the field out with drop={name!r}"
        raise PipelineError(
            f"pack() needs one value per token, but {name!r} has {spec}. Store one value for each token{hint}."
        )
    if name in (SEGMENT_IDS, POSITIONS):
        raise PipelineError(f"pack() makes a field {name!r}, but rows have one already. Rename it, or pass drop=.")


def _make_layout(
    pipeline: PipelineDescription, length: int, long: LongTexts, leaves: tuple[int, ...], pad: Mapping[str, Any] | Any
) -> PackLayout:
    is_single = pipeline.structure.kind is None
    names = ("tokens",) if is_single else tuple(pipeline.structure.paths[leaf] for leaf in leaves)
    unknown = [name for name in pad if name not in names] if isinstance(pad, Mapping) else []
    if unknown:
        raise PipelineError(
            f"pack(pad=...) names the field {unknown[0]!r}, but pack() packs {', '.join(names)}. Name one of them."
        )
    values = [pad.get(name, 0) if isinstance(pad, Mapping) else pad for name in names]
    pads = tuple(
        _check_pad(value, name, pipeline.specs[leaf].dtype)
        for value, name, leaf in zip(values, names, leaves, strict=True)
    )
    return PackLayout(length, long, leaves, names, pads)


def _check_pad(value: Any, name: str, dtype: np.dtype[Any]) -> Any:
    """Return `value` as a scalar of the dtype. Raise PipelineError if it does not fit."""
    try:
        stored = np.array(value, dtype)
    except (OverflowError, TypeError, ValueError):
        stored = None
    if stored is None or stored.ndim or not (stored == value or (value != value and stored != stored)):
        raise PipelineError(f"pack(pad={value!r}): {name!r} is {dtype} and cannot store it. Choose another value.")
    return stored[()]


def _check_texts(lengths: Array, row_length: int, long: LongTexts) -> None:
    longest = int(lengths.max(initial=0))
    if longest == 0:
        raise PipelineError(f"pack() found no token in {len(lengths)} texts. Check the rows, or lengths=.")
    if long == "error" and longest > row_length:
        raise PipelineError(
            f"pack({row_length}, long='error'): text {int(lengths.argmax())} has {longest} tokens. Pack longer rows, "
            "or choose long='split' or 'truncate'."
        )


def _make_source(pipeline: PipelineDescription, packed: Packed, layout: PackLayout) -> PackedSource:
    source, table = pipeline.source, packed.table
    assert isinstance(source, AbstractSource)
    if consecutive_start(packed.inner) != 0:
        rows = rows_at(packed.inner, table.texts)
        table = replace(table, texts=rows.astype(np.uint32 if len(source) < 2**32 else np.int64, copy=False))
    made = PackedSource(source, table, layout)
    made.identify = source.identify and partial(_identify_packed, source.identify, packed.describe(), layout)
    return made


def _identify_packed(identify_texts: Callable[[], Any], order: tuple[Any, ...], layout: PackLayout) -> tuple[Any, ...]:
    return identify_texts(), order, astuple(layout)
