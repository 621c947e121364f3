"""Read-back and finite check for JAX. JAX copies results to the host by itself.

If a process ends during such a copy, JAX's threads crash it. So Forebay waits for the last copies at exit.
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
    """Copies results on the device first, because the next step may donate them. JAX copies that copy to the host."""

    def __init__(self, limit: int) -> None: ...

    def start_copy(self, leaves: Sequence[Any]) -> "_JaxCopy":
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise SpecError(
                "a value inside jit has no result yet. Return it from the function, and put() the returned value."
            )
        copies = [_copy(leaf) for leaf in leaves]
        for copy in copies:
            copy.copy_to_host_async()
        pending = _JaxCopy(copies)
        _pending_copies.add(pending)
        return pending

    def close(self) -> None: ...


class _JaxCopy:
    """A copy by JAX. `has_arrived` means that the result is computed; `take` may wait for the copy."""

    __slots__ = ("__weakref__", "_copies")

    def __init__(self, copies: list[Any]) -> None:
        self._copies = copies

    @property
    def has_arrived(self) -> bool:
        return all(copy.is_ready() for copy in self._copies)

    def take(self) -> list[Array]:
        return [np.array(copy) for copy in self._copies]


_pending_copies: weakref.WeakSet[_JaxCopy] = weakref.WeakSet()


@atexit.register  # runs before JAX's own exit function, because JAX registered that one earlier
def _wait_for_all() -> None:
    for pending in list(_pending_copies):
        with suppress(Exception):  # no code is left that could handle the error
            pending.take()


def all_finite(leaves: Sequence[Any]) -> Any:
    """Check all leaves in one compiled program. Inside another jit it becomes a part of that program."""
    return _compiled_check([leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)])


def _check_leaves(leaves: list[Any]) -> Any:
    return reduce(jnp.logical_and, [jnp.isfinite(leaf).all() for leaf in leaves], jnp.bool_(True))


_compiled_check = jax.jit(_check_leaves)
