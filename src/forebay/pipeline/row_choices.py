"""The rows that `select`, `split` and `sample` choose, and checks of their arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from typing import Any

import numpy as np

from forebay.core.spec import Array
from forebay.errors import PipelineError
from forebay.order.choices import Selected, Span
from forebay.order.orders import Order, require_length
from forebay.order.permutation import Permutation, Positions, derive_key
from forebay.order.sampling import MAX_WEIGHTS, Weights

__all__ = ["balanced_weights", "check_labels", "check_weights", "select_positions", "split_by_group", "split_counts"]

SUM_TOLERANCE = 1e-6  # the sum of the fractions of a split may differ from 1 by this, because floats are rounded
# Part of the key from which a split by groups derives its permutation, so that it differs from a shuffle's permutation
# with the same seed.
_GROUPS_KEY = int.from_bytes(b"split groups", "big")


def select_positions(order: Order, choice: Any) -> Order:
    """Return an order of the positions that `choice` selects from `order`.

    `choice` is a mask, a slice, a range or an array of positions.
    """
    length = require_length(order, "select")
    if isinstance(choice, slice):
        choice = _as_range(choice, length)
    if isinstance(choice, range) and choice.step == 1 and 0 <= choice.start < choice.stop <= length:
        return Span(order, choice.start, len(choice))
    array = _as_array(choice, "select()")
    if array.ndim == 1 and array.size == 0:
        raise PipelineError(f"select() got no position of {length} rows. Choose at least one row.")
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise PipelineError(
            f"select() got {array.dtype}{list(array.shape)}. Pass a list with one boolean for each row, or row numbers."
        )
    return _select_mask(order, array, length) if array.dtype.kind == "b" else _select_numbers(order, array, length)


def _as_range(choice: slice, length: int) -> range:
    try:
        return range(*choice.indices(length))
    except (TypeError, ValueError) as error:  # bounds that are no integers, or a step of 0
        raise PipelineError(f"select({choice}): {error}. Pass integers, such as slice(0, 3).") from None


def _select_mask(order: Order, mask: Array, length: int) -> Order:
    if len(mask) != length:
        raise PipelineError(f"select() got a mask of {len(mask)} booleans for {length} rows. Pass one for each row.")
    count = int(np.count_nonzero(mask))
    if count == 0:
        raise PipelineError(f"select() got a mask without any True for {length} rows. Choose at least one row.")
    first = int(np.argmax(mask))
    if mask[first : first + count].all():
        return Span(order, first, count)
    return Selected.of_mask(order, mask)


def _select_numbers(order: Order, numbers: Array, length: int) -> Order:
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= length:
        raise PipelineError(
            f"select() got row {low if low < 0 else high}, but the pipeline has the rows 0 to {length - 1}. Choose "
            "from these."
        )
    if high <= 1 and len(numbers) == length > 2:
        raise PipelineError(
            f"select() got {length} integers for {length} rows, all of them 0 or 1: this looks like a mask of dtype "
            f"{numbers.dtype}. Pass a mask as bool: mask.astype(bool). If these are row numbers, call "
            "select([0, 1]).select(numbers)."
        )
    positions = numbers.astype(np.int64, copy=False)
    if high - low == len(positions) - 1 and (np.diff(positions) == 1).all():
        return Span(order, low, len(positions))
    return Selected.of_positions(order, positions)


def split_counts(fractions: Sequence[Any], rows: int) -> list[int]:
    """Return the number of rows of each part of a split.

    `fractions` are the user's shares or numbers of rows. The sum of the results is `rows`: of the shares that are not
    whole rows, those with the largest remainders are rounded up.
    """
    call = f"split({', '.join(map(repr, fractions))})"
    if len(fractions) == 1 and isinstance(fractions[0], list | tuple) and fractions[0]:
        raise PipelineError(f"{call}: write split({', '.join(map(repr, fractions[0]))}), without brackets.")
    if not fractions or not all(_is_number(fraction) and isfinite(fraction) and fraction > 0 for fraction in fractions):
        raise PipelineError(f"{call}: pass the fraction of each part as a number above 0, such as split(0.9, 0.1).")
    if all(isinstance(fraction, Integral) for fraction in fractions) and sum(fractions) == rows:
        return list(map(int, fractions))
    total = sum(map(float, fractions))
    if abs(total - 1) > SUM_TOLERANCE:
        raise PipelineError(
            f"{call}: the fractions have the sum {total:g}. Pass fractions with the sum 1, or numbers of rows with the "
            f"sum {rows}."
        )
    quotas = [float(fraction) / total * rows for fraction in fractions]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda part: counts[part] - quotas[part])
    for part in by_remainder[: rows - sum(counts)]:
        counts[part] += 1
    if 0 in counts:
        raise PipelineError(
            f"{call} of {rows} rows leaves part {counts.index(0)} without a row. Pass a larger fraction."
        )
    return counts


def split_by_group(labels: Array, counts: Sequence[int], seed: int | None) -> list[Array]:
    """Return one mask of all rows for each part of a split by groups.

    All rows with the same label are one group, and belong to the same part. `counts` has the wanted number of
    rows of each part.

    The function puts the groups in a random order or, without a seed, in the order of their first rows. Then it cuts
    the sequence of all their rows at the wanted counts. A group belongs to the part that has its middle row.
    """
    groups = _Groups.of(labels)
    order = np.argsort(groups.first_rows)
    if seed is not None:
        order = order[Permutation(len(order), derive_key(seed, _GROUPS_KEY))(np.arange(len(order)))]
    sizes = groups.sizes[order]
    middles = np.cumsum(sizes) - sizes / 2
    parts = np.empty(len(order), np.min_scalar_type(len(counts)))
    parts[order] = np.minimum(np.searchsorted(np.cumsum(counts), middles, side="right"), len(counts) - 1)
    row_parts = parts[groups.numbers]
    masks = [row_parts == part for part in range(len(counts))]
    for part, mask in enumerate(masks):
        if not mask.any():
            raise PipelineError(
                f"split(by=...) has {len(order)} groups, the largest of {groups.sizes.max()} rows, and part {part} "
                f"({counts[part]} rows) got none of them. Choose other fractions, or smaller groups."
            )
    return masks


def check_labels(labels: Any, rows: int, call: str) -> Array:
    """Return labels as an array, or raise PipelineError unless there is one per row.

    `call` is the user's call, such as "split(by=...)", for the error message.
    """
    array = _as_array(labels, call)
    if array.shape != (rows,):
        raise PipelineError(
            f"{call} got labels of shape {list(array.shape)} for {rows} rows. Pass one label for each row, or the name "
            "of a field."
        )
    return array


def _as_array(values: Any, call: str) -> Array:
    if isinstance(values, np.ma.MaskedArray):
        raise PipelineError(
            f"{call} got a masked array, and its mask would be lost. Pass array.filled(value), or leave out the masked "
            "rows: call select(~np.ma.getmaskarray(array)) first, and pass array.compressed()."
        )
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise PipelineError(
            f"{call}: NumPy cannot make an array of the argument: {error}. Pass a one-dimensional list."
        ) from None


def check_weights(weights: Any, rows: int) -> Weights:
    """Return the weights of `rows` rows as float64, or raise PipelineError if they are invalid."""
    if isinstance(weights, dict):  # class weights of Keras
        raise PipelineError(
            "sample(weights=...) got a dict. Pass one number for each row: "
            "weights=[class_weight[label] for label in labels]."
        )
    array = _as_array(weights, "sample(weights=...)")
    if array.dtype.kind == "c":
        raise PipelineError(
            f"sample(weights=...) got complex numbers ({array.dtype}), and their imaginary part would be lost. Pass "
            "weights.real or abs(weights)."
        )
    try:
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PipelineError(f"sample(weights=...) got no numbers: {error}. Pass one number for each row.") from None
    if array.shape != (rows,):
        raise PipelineError(
            f"sample(weights=...) got weights of shape {list(array.shape)} for {rows} rows. Pass one for each row."
        )
    if rows > MAX_WEIGHTS:
        raise PipelineError(f"sample() supports {MAX_WEIGHTS} rows, not {rows}. Call take() or select() before it.")
    is_bad = ~((array >= 0) & (array < np.inf))  # also True for NaN
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise PipelineError(
            f"sample(weights=...) got {array[row]} for row {row}. Pass finite numbers that are not negative."
        )
    if not array.any():
        raise PipelineError(f"sample(weights=...) got only zeros for {rows} rows. Give some row a weight above 0.")
    return array


def balanced_weights(labels: Array) -> Weights:
    """Return weights that make all labels equally likely."""
    groups = _Groups.of(labels)
    weights: Weights = (1.0 / groups.sizes)[groups.numbers]
    return weights


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows grouped by label. The groups are numbered in the order of their labels."""

    numbers: Positions  # the group of each row
    sizes: Positions  # rows of each group

    @classmethod
    def of(cls, labels: Array) -> "_Groups":
        if labels.dtype.kind in "iu" and _is_dense(labels):  # to count takes much less time than to sort
            # Subtract in 64 bits: the difference of two 8-bit labels may need 9 bits.
            wide = labels if labels.dtype.kind == "u" else labels.astype(np.int64, copy=False)
            offsets = (wide - wide.min()).astype(np.int64)
            counts = np.bincount(offsets)
            return cls((np.cumsum(counts > 0) - 1)[offsets], counts[counts > 0])
        try:
            _, numbers, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        except TypeError as error:
            raise PipelineError(f"the labels cannot be compared: {error}. Use labels of one type.") from None
        return cls(numbers, sizes)

    @property
    def first_rows(self) -> Positions:
        """The first row of each group."""
        first_rows = np.empty(len(self.sizes), np.int64)
        # NumPy keeps the last assignment to a group. In this reversed order, it is that of the first row.
        first_rows[self.numbers[::-1]] = np.arange(len(self.numbers))[::-1]
        return first_rows


def _is_dense(labels: Array) -> bool:
    """Return whether the range of integer labels is short enough for a table of counts."""
    return int(labels.max()) - int(labels.min()) <= max(1024, len(labels))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
