"""Emulation of jitted functions without callbacks to Python."""

from functools import partial
from typing import Any

import jax
import jax.experimental
from jax import numpy as jnp

from forebay.doctor.emulate.emulator import Emulator

__all__ = ["leave_out_callbacks"]


def leave_out_callbacks(emulator: Emulator) -> None:
    """Replace the function that adds a callback, if the emulation leaves out such callbacks on the target line."""
    for api, owner, name in (
        ("jax.debug.print", jax.debug, "print"),
        ("jax.debug.callback", jax.debug, "callback"),
    ):
        if emulator.settings.setting == api:
            emulator.patches.replace(owner, name, partial(_leave_out, emulator), api=name)
    for api, owner, name in (
        ("jax.pure_callback", jax, "pure_callback"),
        ("jax.experimental.io_callback", jax.experimental, "io_callback"),
    ):
        if emulator.settings.setting == api:
            emulator.patches.replace(owner, name, partial(_return_zeros, emulator), api=name)


def _leave_out(emulator: Emulator, original: Any) -> Any:
    """Return a hook that does nothing on the target line."""

    def hook(*args: Any, **kwargs: Any) -> Any:
        if not args or not emulator.is_target_calling():
            return original(*args, **kwargs)
        emulator.settings.replaced += 1
        return None

    return hook


def _return_zeros(emulator: Emulator, original: Any) -> Any:
    """Return a hook that returns zeros of the declared shapes, because the callback does not run."""

    def hook(callback: Any, result_shape_dtypes: Any, *args: Any, **kwargs: Any) -> Any:
        if not emulator.is_target_calling():
            return original(callback, result_shape_dtypes, *args, **kwargs)
        emulator.settings.replaced += 1
        return jax.tree_util.tree_map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), result_shape_dtypes)

    return hook
