"""Transforms on a device: done to a batch once it has arrived, by the framework's own operations, as it is taken.

Casts and scaling give what they would have given on the host; the user's own functions get the framework's arrays, on
the consumer's thread and stream, one batch at a time.
"""

from collections.abc import Sequence
from typing import Any

from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import Structure, Tree, flatten
from forebay.transforms.ops import Cast, Map, Scale, Transform, by_leaf, make_rng

__all__ = ["Afterwards"]


class Afterwards:
    """All transforms of a feed that run on its device, in turn."""

    def __init__(
        self, transforms: Sequence[Transform], structure: Structure, side: DeviceHandOff, *, first: int
    ) -> None:
        self._transforms, self._structure, self._side, self._first = tuple(transforms), structure, side, first

    def __call__(self, leaves: list[Any], key: Sequence[int]) -> Tree:
        """The batch as it is handed to the user; `key` is what random numbers are drawn from."""
        structure = self._structure
        for number, transform in enumerate(self._transforms, self._first):
            try:
                leaves, structure = self._apply(transform, leaves, structure, (*key, number))
            except Exception as error:
                error.add_note(f"in {transform}, on the device")
                raise
        return structure.unflatten(leaves)

    def _apply(
        self, transform: Transform, leaves: list[Any], structure: Structure, key: Sequence[int]
    ) -> tuple[list[Any], Structure]:
        if isinstance(transform, Map):
            return _mapped(transform, structure.unflatten(leaves), key)
        if isinstance(transform, Cast):
            wanted = by_leaf(transform.fields, structure, transform)
            casts = zip(leaves, wanted, strict=True)
            return [leaf if to is None else self._side.cast(leaf, to) for leaf, to in casts], structure
        assert isinstance(transform, Scale)  # nothing else is placed here
        factors = by_leaf(transform.fields, structure, transform)
        scaled = zip(leaves, factors, strict=True)
        return [leaf if by is None else self._scaled(transform, leaf, by) for leaf, by in scaled], structure

    def _scaled(self, transform: Scale, leaf: Any, factor: float) -> Any:
        scaled = self._side.cast(leaf, transform.dtype) * transform.dtype.type(factor).item()
        return scaled + transform.dtype.type(transform.offset).item() if transform.offset else scaled


def _mapped(transform: Map, tree: Tree, key: Sequence[int]) -> tuple[list[Any], Structure]:
    function = transform.function
    result = function(tree, rng=make_rng(transform.seed, key)) if transform.takes_rng else function(tree)
    return flatten(result)
