"""Hooks for JAX: transfers, waits, compilations, and calls of jitted functions. Jitted functions stay jitted."""

from contextlib import suppress
from typing import Any

import jax
from jax._src import xla_bridge
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import describe_array
from forebay.doctor.capture.hooks.jax.callbacks import hook_callbacks
from forebay.doctor.capture.hooks.jax.compilation import CompileListener
from forebay.doctor.capture.hooks.jax.eager_ops import hook_operations
from forebay.doctor.capture.hooks.jax.jit import hook_functions
from forebay.doctor.capture.hooks.jax.settings import hook_settings
from forebay.doctor.capture.hooks.jax.transforms import hook_transforms
from forebay.doctor.capture.hooks.jax.uploads import hook_joins, hook_uploads
from forebay.doctor.capture.patches import Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = ["install"]

# Methods of arrays that read values back -> API name in events.
_READS = {
    "item": "jax.Array.item",
    "tolist": "jax.Array.tolist",
    "tobytes": "jax.Array.tobytes",
    "__bool__": "bool(array)",
    "__float__": "float(array)",
    "__int__": "int(array)",
    "__index__": "index(array)",
    "__complex__": "complex(array)",
    "__array__": "np.asarray(array)",
    "__repr__": "print(array)",
    "__str__": "print(array)",
    "__format__": "format(array)",
}
_CPU_NOTE = (
    "np.asarray of a JAX array on the CPU is not recorded: it reads the memory directly. On a GPU it is recorded."
)

Description = tuple[int, dict[str, Any] | None]  # bytes and details of an event


def install(patches: Patches) -> None:
    _hook_reads(patches)
    for owner, name in ((jax, "block_until_ready"), (jax, "effects_barrier"), (ArrayImpl, "block_until_ready")):
        api = f"{'jax' if owner is jax else 'jax.Array'}.{name}"
        patches.hook(owner, name, EventKind.SYNC, api, lambda *_, **__: (0, None))
    patches.hook(jax.stages.Compiled, "__call__", EventKind.RUN, "jax.stages.Compiled", lambda *_, **__: (0, None))
    hook_uploads(patches)
    hook_functions(patches, CompileListener(patches))
    hook_transforms(patches)
    hook_operations(patches)
    hook_joins(patches)  # after the operations, so that a join of host arrays is an upload, not an operation
    hook_callbacks(patches)
    hook_settings(patches)


def _hook_reads(patches: Patches) -> None:
    for name, api in _READS.items():
        patches.hook(ArrayImpl, name, EventKind.DOWNLOAD, api, _describe_read)
    patches.hook(jax, "device_get", EventKind.DOWNLOAD, "jax.device_get", _describe_device_get)
    _hook_value(patches)
    patches.add_undo(lambda: _note_cpu_reads(patches), api="np.asarray of arrays on the CPU")


def _describe_read(result: Any, array: Any, *_: Any, **__: Any) -> Description:
    return array.nbytes, describe_array(array)


def _describe_device_get(result: Any, x: Any) -> Description | None:
    """Describe the read-back of a tree as one event, with details of its largest array."""
    arrays = [leaf for leaf in jax.tree_util.tree_leaves(x) if isinstance(leaf, ArrayImpl)]
    if not arrays:
        return None
    return sum(array.nbytes for array in arrays), describe_array(max(arrays, key=lambda array: int(array.nbytes)))


class _PropertyWithAttributes(property):
    """A property that accepts attributes such as `__wrapped__`, which `Patches` sets on every hook."""


def _hook_value(patches: Patches) -> None:
    """Hook the property through which JAX reads an array without a method in `_READS`."""
    ledger, api = patches.ledger, "jax.Array._value"

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        array = args[0]
        line = ledger.lines.current_line()
        ledger.write((EventKind.DOWNLOAD, api, line), start, end, array.nbytes, detail=describe_array(array))

    def hook_property(original: Any) -> Any:
        return _PropertyWithAttributes(make_hook(ledger, api, original.__get__, write))

    patches.replace(ArrayImpl, "_value", hook_property, api=api)


def _note_cpu_reads(patches: Patches) -> None:
    """Add a note to the report if the script ran on the CPU.

    `Patches` calls this when profiling ends. Earlier, `jax.default_backend()` would initialise JAX before the script
    configures it.
    """
    with suppress(Exception):
        if xla_bridge.backends_are_initialized() and jax.default_backend() == "cpu":
            patches.ledger.notes.append(_CPU_NOTE)
