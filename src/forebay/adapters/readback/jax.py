"""Results in JAX, which copies to the host by itself once it is asked to.

A process that ends amid such a copy is ended by JAX's own threads, so the last copies are waited for before.
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

__all__ = ["Fetcher", "all_finite"]

_copy = jax.jit(jnp.copy)


class Fetcher:
    """A copy on the device, because what was put may be donated to the next step; from there JAX sends it on."""

    def __init__(self, limit: int) -> None: ...

    def fetch(self, leaves: Sequence[Any]) -> "_Copies":
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            raise SpecError(
                "a value inside jit has no result yet: return it from the function, and put() what comes out."
            )
        copies = [_copy(leaf) for leaf in leaves]
        for copy in copies:
            copy.copy_to_host_async()
        pending = _Copies(copies)
        _under_way.add(pending)
        return pending

    def close(self) -> None: ...


class _Copies:
    """JAX tells when a result exists, not when its copy has landed; taking it may wait for the end of the copy."""

    __slots__ = ("__weakref__", "_copies")

    def __init__(self, copies: list[Any]) -> None:
        self._copies = copies

    @property
    def arrived(self) -> bool:
        return all(copy.is_ready() for copy in self._copies)

    def take(self) -> list[Array]:
        return [np.array(copy) for copy in self._copies]


_under_way: weakref.WeakSet[_Copies] = weakref.WeakSet()


@atexit.register  # behind JAX's own, which was imported before: so it runs first
def _wait_for_all() -> None:
    for pending in list(_under_way):
        with suppress(Exception):  # it failed: nobody is left to be told
            pending.take()


def all_finite(leaves: Sequence[Any]) -> Any:
    """One program for all leaves; inside another jit, a part of that."""
    return _one_program([leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)])


def _reduce(leaves: list[Any]) -> Any:
    return reduce(jnp.logical_and, [jnp.isfinite(leaf).all() for leaf in leaves], jnp.bool_(True))


_one_program = jax.jit(_reduce)
