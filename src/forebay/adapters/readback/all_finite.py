"""all_finite: whether there is a NaN or an infinity, asked where the data is."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.adapters.readback.base import framework_of, module_of, unwrap
from forebay.core.spec import Tree, flatten
from forebay.errors import SpecError

__all__ = ["all_finite"]


def all_finite(tree: Tree) -> Any:
    """Whether every number of a tree of arrays is finite: one boolean, on the device the arrays are on.

    Nothing waits for the answer until it is read; let a `Readback` bring it. Integers are finite by nature, and None
    (the gradient of what was not used) is passed over.

    >>> import numpy as np
    >>> bool(all_finite({"loss": np.float32(0.5), "grads": [np.zeros(3), np.array([1.0, np.nan])]}))
    False
    """
    leaves = [unwrap(leaf) for leaf in flatten(list(tree) if isinstance(tree, Iterator) else tree)[0]]
    leaves = [leaf for leaf in leaves if not _is_nothing(leaf)]
    frameworks = sorted({framework_of(leaf) for leaf in leaves})
    if not frameworks:
        return np.bool_(True)
    if len(frameworks) > 1:
        raise SpecError(
            f"one answer cannot be on the devices of {' and '.join(frameworks)} at once: call all_finite for each."
        )
    return module_of(frameworks[0]).all_finite(leaves)


def _is_nothing(leaf: Any) -> bool:
    """None, or a list of nothing else, as the gradients are before there are any."""
    return leaf is None or (isinstance(leaf, list) and all(map(_is_nothing, leaf)))
