"""`RowFilter`: the function that a user passes to `Pipeline.filter`, and its fields."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.decision import function_name
from forebay.core.spec import Array, Structure, Tree
from forebay.errors import PipelineError

__all__ = ["RowFilter", "find_leaf"]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Calls the function of `Pipeline.filter` with some fields of many rows, and checks its result."""

    function: Callable[[Any], Any]
    leaves: tuple[int, ...]  # numbers of the leaves that the function receives
    build: Callable[[Sequence[Array]], Tree]  # makes the function's argument from these leaves
    fields: tuple[str, ...]  # the names of these leaves

    @classmethod
    def of(
        cls, function: Callable[[Any], Any], structure: Structure, fields: str | Sequence[str] | None
    ) -> "RowFilter":
        """Validate the arguments of `Pipeline.filter`, and return them as a `RowFilter`.

        Without `fields`, the function receives a batch with all fields. If `fields` is one name, it receives an array;
        if it is a list of names, a dict of arrays.
        """
        if not callable(function):
            raise PipelineError(
                f"filter() needs a function, got {function!r}. Pass a function that returns a boolean for each row of "
                "a batch."
            )
        if fields is None:
            return cls(function, tuple(range(len(structure.paths))), structure.builder(), structure.paths)
        if isinstance(fields, str):
            return cls(function, (find_leaf(structure, fields, "filter"),), _only_column, (fields,))
        names = tuple(fields) if isinstance(fields, Sequence) else ()
        if not all(isinstance(name, str) for name in names) or not isinstance(fields, Sequence):
            raise PipelineError(f"filter(fields={fields!r}): pass the name of a field, or a list of names.")
        if not names:
            raise PipelineError("filter(fields=()) names no field. Name at least one field, or leave out fields=.")
        leaves = tuple(find_leaf(structure, name, "filter") for name in names)
        return cls(function, leaves, lambda columns: dict(zip(names, columns, strict=True)), names)

    def mask(self, columns: Sequence[Array]) -> Array:
        """Call the function, and return its result: a boolean for each row.

        `columns` has one array for each of `leaves`.
        """
        rows = len(columns[0])
        try:
            result = self.function(self.build(columns))
        except Exception as error:
            error.add_note(f"in {self}, whose function receives arrays of {rows} rows, not single rows")
            raise
        mask = np.asarray(result)
        if mask.dtype != bool or mask.shape != (rows,):
            raise PipelineError(
                f"{self} returned {mask.dtype}{list(mask.shape)} for {rows} rows. Return an array with one boolean for "
                "each row, such as batch['label'] < 3."
            )
        return mask

    def __str__(self) -> str:
        return f"filter({function_name(self.function)})"


def find_leaf(structure: Structure, field: str, call: str) -> int:
    """Return the number of the leaf named `field`, or raise PipelineError.

    `call` is the name of the method that the user called, for the error message.
    """
    paths = structure.paths
    if paths.count(field) != 1:
        if field in paths:
            count, advice = "several fields", "Name one field."
        else:
            count, advice = "no field", "Name one of these fields, or add the field to the source."
        raise PipelineError(f"{call}() found {count} named {field!r} in a row with {', '.join(paths)}. {advice}")
    return paths.index(field)


def _only_column(columns: Sequence[Array]) -> Array:
    return columns[0]
