"""Read-back and check for finite values for JAX, whose threads copy arrays to the host.

If the process exits during a copy, these threads crash the process. So Forebay waits for pending copies at exit.
"""

import atexit
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from forebay.core.spec import Array
from forebay.errors import SpecError

__all__ = ["HostCopier", "all_finite"]

_copy = jax.jit(jnp.copy)


class HostCopier:
    """Copies arrays to the host in two steps.

    JAX first copies them on the device, because the next step of the program may donate the original arrays. Then JAX
    copies these snapshots to the host.
    """

    def __init__(self, max_copies: int) -> None: ...  # unused: JAX manages the memory of its copies

    def start_copy(self, leaves: Sequence[Any]) -> "_JaxCopy":
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise SpecError(
                "a value inside jit has no result yet. Return it from the function, and put() the returned value."
            )
        snapshots = [_copy(leaf) for leaf in leaves]
        for snapshot in snapshots:
            snapshot.copy_to_host_async()
        pending = _JaxCopy(snapshots)
        _pending_copies.add(pending)
        return pending

    def close(self) -> None: ...


class _JaxCopy:
    """A copy that JAX makes.

    `has_arrived` says only whether the device has computed the result, because JAX does not report the end of the copy.
    So `take` may still wait for the copy.
    """

    __slots__ = ("__weakref__", "_snapshots")

    def __init__(self, snapshots: list[Any]) -> None:
        self._snapshots = snapshots

    @property
    def has_arrived(self) -> bool:
        return all(snapshot.is_ready() for snapshot in self._snapshots)

    def take(self) -> list[Array]:
        return [np.array(snapshot) for snapshot in self._snapshots]


_pending_copies: weakref.WeakSet[_JaxCopy] = weakref.WeakSet()


@atexit.register  # Python calls this before JAX's own exit function, which JAX has registered earlier
def _wait_for_pending_copies() -> None:
    for pending in list(_pending_copies):
        with suppress(Exception):  # at exit, no code could handle the error
            pending.take()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Return whether all values are finite, as a boolean that one compiled program computes.

    Inside a jitted function, the check becomes a part of that function.
    """
    return _compiled_check([leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)])


def _check_leaves(leaves: list[Any]) -> Any:
    return reduce(jnp.logical_and, [jnp.isfinite(leaf).all() for leaf in leaves], jnp.bool_(True))


_compiled_check = jax.jit(_check_leaves)
