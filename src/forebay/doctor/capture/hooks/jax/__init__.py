"""JAX: what crosses, what waits, what is compiled. Jitted functions stay jitted; their calls are in `jax_functions`."""

from contextlib import suppress
from typing import Any

import jax
from jax._src import xla_bridge
from jax._src.array import ArrayImpl

from forebay.doctor.capture.hooks.jax.arrays import about
from forebay.doctor.capture.hooks.jax.compilation import Compiles
from forebay.doctor.capture.hooks.jax.eager_ops import watch_operations
from forebay.doctor.capture.hooks.jax.jit import watch_functions
from forebay.doctor.capture.hooks.jax.transforms import watch_transforms
from forebay.doctor.capture.hooks.jax.uploads import watch_uploads
from forebay.doctor.capture.patches import Patches, hooked
from forebay.doctor.model.events import Kind

__all__ = ["install"]

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
_UNSEEN = "np.asarray of a JAX array on the CPU reads its memory unseen; on a GPU it is seen."

Found = tuple[int, dict[str, Any] | None]


def install(patches: Patches) -> None:
    _watch_reads(patches)
    for owner, name in ((jax, "block_until_ready"), (jax, "effects_barrier"), (ArrayImpl, "block_until_ready")):
        spoken = f"{'jax' if owner is jax else 'jax.Array'}.{name}"
        patches.watch(owner, name, Kind.SYNC, spoken, lambda *_, **__: (0, None))
    patches.watch(jax.stages.Compiled, "__call__", Kind.RUN, "jax.stages.Compiled", lambda *_, **__: (0, None))
    watch_uploads(patches)
    watch_functions(patches, Compiles(patches))
    watch_transforms(patches)
    watch_operations(patches)


def _watch_reads(patches: Patches) -> None:
    for name, spoken in _READS.items():
        patches.watch(ArrayImpl, name, Kind.DOWNLOAD, spoken, _downloaded)
    patches.watch(jax, "device_get", Kind.DOWNLOAD, "jax.device_get", _fetched)
    _watch_value(patches)
    patches.undo_with(lambda: _tell_of_unseen(patches), api="np.asarray of arrays on the CPU")


def _downloaded(result: Any, array: Any, *_: Any, **__: Any) -> Found:
    return array.nbytes, about(array)


def _fetched(result: Any, x: Any) -> Found | None:
    """A tree is one wait; the details are those of its largest array."""
    arrays = [leaf for leaf in jax.tree_util.tree_leaves(x) if isinstance(leaf, ArrayImpl)]
    if not arrays:
        return None
    return sum(array.nbytes for array in arrays), about(max(arrays, key=lambda array: int(array.nbytes)))


class _Property(property):
    """One that can be told what it stands for."""


def _watch_value(patches: Patches) -> None:
    """Where all other ways to read an array end."""
    ledger, api = patches.ledger, "jax.Array._value"

    def write(start: int, end: int, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ledger.write(Kind.DOWNLOAD, api, ledger.lines.here(), start, end, args[0].nbytes, about(args[0]))

    def make(original: Any) -> Any:
        return _Property(hooked(ledger, api, original.__get__, write))

    patches.replace(ArrayImpl, "_value", make, api=api)


def _tell_of_unseen(patches: Patches) -> None:
    """Asked at the end: to ask for the backend is to choose it, which is up to the script."""
    with suppress(Exception):
        if xla_bridge.backends_are_initialized() and jax.default_backend() == "cpu":
            patches.ledger.notes.append(_UNSEEN)
