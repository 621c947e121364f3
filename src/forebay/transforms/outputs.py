"""`write_leaves`: checks the arrays that transforms return, and copies them to a slot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.spec import Array, ArraySpec
from forebay.errors import TransformError
from forebay.transforms.ops import Transform

__all__ = ["describe_transforms", "write_leaves"]


def describe_transforms(transforms: Sequence[Transform]) -> str:
    """Return a description of the transforms for error messages."""
    return " then ".join(map(str, transforms))


def write_leaves(leaves: list[Any], out: Sequence[Array], names: Sequence[str], description: str) -> None:
    """Copy the output of transforms to the arrays of a slot.

    Raise TransformError if shapes or dtypes differ from the inferred specs.
    """
    if len(leaves) != len(out):
        raise TransformError(
            f"{description} returned {len(leaves)} arrays for this batch, but {len(out)} for the sample rows. Return "
            "the same fields for every batch."
        )
    for leaf, target, name in zip(leaves, out, names, strict=True):
        array = np.asarray(leaf)
        if array.shape != target.shape or array.dtype != target.dtype:
            got, expected = ArraySpec(array.shape[1:], array.dtype), ArraySpec(target.shape[1:], target.dtype)
            raise TransformError(
                f"{description} returned {len(array)} rows of {got} in {name!r} for a batch of {len(target)} rows; the "
                f"sample rows have {expected}. Return one row of this shape and dtype for each input row, or pad with "
                "batch(..., pad=0)."
            )
        target[...] = array
