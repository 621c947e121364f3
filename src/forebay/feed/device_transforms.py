"""Device transforms, which run when the consumer takes a batch.

Casts and scaling give the same results as on the host. The functions of maps receive one batch of the framework's
arrays and run on the consumer's thread and stream.
"""

from collections.abc import Sequence
from typing import Any

from forebay.core.handoff import DeviceHandOff
from forebay.core.spec import Structure, Tree, flatten
from forebay.transforms.ops import Cast, Map, Scale, Transform, make_rng, values_per_leaf

__all__ = ["DeviceTransforms"]


class DeviceTransforms:
    """Applies the device transforms of a feed, one after the other."""

    def __init__(
        self, transforms: Sequence[Transform], structure: Structure, hand_off: DeviceHandOff, *, first: int
    ) -> None:
        """`first` is the index of the first device transform in the pipeline."""
        self._transforms, self._structure, self._hand_off, self._first = tuple(transforms), structure, hand_off, first

    def __call__(self, leaves: list[Any], key: Sequence[int]) -> Tree:
        """Return the transformed batch. `key` seeds the random numbers of maps."""
        structure = self._structure
        for index, transform in enumerate(self._transforms, self._first):
            try:
                leaves, structure = self._apply(transform, leaves, structure, (*key, index))
            except Exception as error:
                error.add_note(f"in {transform}, on the device")
                raise
        return structure.unflatten(leaves)

    def _apply(
        self, transform: Transform, leaves: list[Any], structure: Structure, key: Sequence[int]
    ) -> tuple[list[Any], Structure]:
        if isinstance(transform, Map):
            return _apply_map(transform, structure.unflatten(leaves), key)
        assert isinstance(transform, Cast | Scale)  # the planner moves no other transform to a device
        values = zip(leaves, values_per_leaf(transform.fields, structure, transform), strict=True)
        if isinstance(transform, Cast):
            return [leaf if dtype is None else self._hand_off.cast(leaf, dtype) for leaf, dtype in values], structure
        return [leaf if factor is None else self._scale(transform, leaf, factor) for leaf, factor in values], structure

    def _scale(self, transform: Scale, leaf: Any, factor: float) -> Any:
        scaled = self._hand_off.cast(leaf, transform.dtype) * transform.dtype.type(factor).item()
        return scaled + transform.dtype.type(transform.offset).item() if transform.offset else scaled


def _apply_map(transform: Map, tree: Tree, key: Sequence[int]) -> tuple[list[Any], Structure]:
    function = transform.function
    result = function(tree, rng=make_rng(transform.seed, key)) if transform.takes_rng else function(tree)
    return flatten(result)
