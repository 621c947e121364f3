"""`all_finite`: checks arrays for NaN and infinity on their device."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.adapters.readback.base import framework_module, framework_of, unwrap_variable
from forebay.core.spec import Tree, flatten
from forebay.errors import SpecError

__all__ = ["all_finite"]


def all_finite(tree: Tree) -> Any:
    """Return whether all numbers in a tree of arrays are finite.

    The result is one boolean on the device of the arrays. Only reading it waits for the device; pass it to a `Readback`
    to avoid the wait.

    Args:
        tree: An array or a tree of arrays of one framework. Integers are always finite. None, the gradient of an unused
            variable, is ignored.

    Examples:
        >>> import numpy as np
        >>> bool(all_finite({"loss": np.float32(0.5), "grads": [np.zeros(3), np.array([1.0, np.nan])]}))
        False
    """
    leaves = [unwrap_variable(leaf) for leaf in flatten(list(tree) if isinstance(tree, Iterator) else tree)[0]]
    leaves = [leaf for leaf in leaves if not _is_none(leaf)]
    frameworks = sorted({framework_of(leaf) for leaf in leaves})
    if not frameworks:
        return np.bool_(True)
    if len(frameworks) > 1:
        raise SpecError(
            f"the tree has arrays of {' and '.join(frameworks)}, and the result is an array of only one "
            "framework. Call all_finite once for each framework."
        )
    return framework_module(frameworks[0]).all_finite(leaves)


def _is_none(leaf: Any) -> bool:
    """Return whether a leaf is None or a list of None, such as missing gradients."""
    return leaf is None or (isinstance(leaf, list) and all(map(_is_none, leaf)))
