"""The device transform that makes dense rows from sparse rows.

Sparse rows cross to a device as pairs of leaves: the values of each row, and their column numbers. All rows of a matrix
are padded to the same number of values: a shorter row repeats its last value, and an empty row has zeros in column 0.
So no column of a row gets two different values, and the result does not depend on the order in which a device writes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.spec import Structure
from forebay.transforms.batch_context import BatchContext

__all__ = ["Densify"]


@dataclass(frozen=True, slots=True)
class Densify:
    """Replaces each pair of values and column numbers by dense rows."""

    widths: tuple[int | None, ...]  # for each leaf of a row, its length if it arrives as a pair, else None
    structure: Structure  # of the dense rows
    where: str = "device"

    def apply(self, leaves: list[Any], structure: Structure, context: BatchContext) -> tuple[list[Any], Structure]:
        """Make dense rows with NumPy. A feed on a device calls `join` instead."""
        return self.join(leaves, _to_dense), self.structure

    def join(self, leaves: list[Any], to_dense: Callable[[Any, Any, int], Any]) -> list[Any]:
        """Return the leaves of dense rows.

        `to_dense` makes dense rows from values, column numbers and a width.
        """
        remaining = iter(leaves)
        return [
            next(remaining) if width is None else to_dense(next(remaining), next(remaining), width)
            for width in self.widths
        ]

    def __str__(self) -> str:
        return "densify"


def _to_dense(values: Any, columns: Any, width: int) -> Any:
    dense = np.zeros((len(values), width), values.dtype)
    np.put_along_axis(dense, columns.astype(np.intp), values, axis=1)
    return dense
