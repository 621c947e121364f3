"""What a hand-off is: a slot's root in, the framework's own array over the same memory out."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from forebay.errors import SpecError
from forebay.spec import ArraySpec

__all__ = ["HandOff", "refuse_dtypes"]


class HandOff(Protocol):
    """One framework's way to take memory over."""

    @property
    def name(self) -> str: ...
    def wire_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype the framework will hold: another one where it narrows."""
        ...

    def check(self, specs: Sequence[ArraySpec], names: Sequence[str]) -> None:
        """Refuse what the framework has no type for, before anything runs."""
        ...

    def hand_off(self, roots: Sequence[Any]) -> list[Any]:
        """The framework's arrays over these roots; each keeps its root referenced for as long as it lives."""
        ...


def refuse_dtypes(framework: str, specs: Sequence[ArraySpec], names: Sequence[str], kinds: str) -> None:
    """Refuse dtypes whose kind is not among those the framework can hold."""
    for spec, name in zip(specs, names, strict=True):
        widest = 16 if spec.dtype.kind == "c" else 8
        if spec.dtype.kind not in kinds or spec.dtype.fields is not None or spec.dtype.itemsize > widest:
            raise SpecError(
                f"{framework} has no type for {name!r} ({spec}). Convert it to numbers before or in a map, "
                "leave it out of the tree, or feed('numpy')."
            )
