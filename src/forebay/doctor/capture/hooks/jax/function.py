"""What the doctor knows of one jitted function, and what it makes of its calls."""

from contextlib import suppress
from typing import Any

import jax
from jax._src import core

from forebay.doctor.capture.hooks.jax.arrays import data_in, first_placed, has_data, is_data
from forebay.doctor.capture.hooks.jax.signatures import Parameters, Signature, reason_for, signature_of, text_of

__all__ = ["Function"]

_SURE = 8  # calls without data of NumPy's in a tree, after which that tree is looked into now and then only:
_NOW_AND_THEN = 32  # to look at the parameters of a large model takes half as long as the call


class Function:
    """One jitted function."""

    def __init__(self, original: Any) -> None:
        self.name = str(getattr(original, "__name__", original))
        self.detail = {"function": self.name}
        self.device: str | None = None  # where it runs
        self._original = original
        self._parameters = Parameters(original)
        self._compiled_for: Signature | None = None  # what it was called with when it was compiled last
        self._without_data = 0  # calls in a row, as far as trees go

    def may_hold_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call is worth looking at more closely: asked at every call."""
        self._without_data = calls = self._without_data + 1
        if calls <= _SURE or calls % _NOW_AND_THEN == 0 or has_data(args):
            return True
        return bool(kwargs) and has_data(kwargs.values())

    def data_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[Any]]:
        """The data of NumPy's in each argument that holds any, by the argument's name."""
        found: dict[str, list[Any]] = {}
        into_trees = self._looks_into_trees
        for name, (value, static) in self._parameters.named(args, kwargs).items():
            if is_data(value) and not static:
                found[name] = [value]
            elif into_trees and not static and has_data(jax.tree_util.tree_leaves(value)):
                found[name] = data_in(value)
                self._without_data = 0
        return found

    @property
    def _looks_into_trees(self) -> bool:
        return self._without_data <= _SURE or self._without_data % _NOW_AND_THEN == 0

    def was_compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
        """Details of a compilation that this call brought about."""
        self.device = first_placed(result)
        signature = signature_of(self._parameters.named(args, kwargs))
        reason = reason_for(self._compiled_for, signature)
        self._compiled_for = signature
        constants = self._constants_nbytes(args, kwargs)
        return (
            {**self.detail, "signature": text_of(signature)}
            | ({"reason": reason} if reason else {})
            | ({"constants_nbytes": constants} if constants else {})
        )

    def _constants_nbytes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Bytes of arrays that were compiled in. The trace is the one that was just made, which JAX remembers."""
        if jax.config.jax_disable_jit or not core.trace_state_clean():
            return 0  # here it would be made anew, for us alone
        with suppress(Exception):
            return sum(int(constant.nbytes) for constant in self._original.trace(*args, **kwargs).jaxpr.consts)
        return 0
