"""upload_once: uploads an array once and returns the same tensor at every later call.

A cached copy must not become stale unnoticed. So the array is read-only while copies of it are cached: NumPy raises an
error at the line that writes to it. For arrays that must stay writable, `check="full"` compares a checksum of their
contents (CRC-32) at every call instead.
"""

import mmap
import sys
import threading
import weakref
import zlib
from functools import partial
from typing import Any

import numpy as np

from forebay.adapters.upload.uploaders import Uploader, uploader
from forebay.core.spec import Array, ArraySpec, Tree, flatten
from forebay.errors import SpecError

__all__ = ["forget", "upload_once"]


class _CachedCopies:
    """The copies of one array, by framework and device."""

    __slots__ = ("array", "checksummed", "locked", "was_writable")

    def __init__(self, array: Array) -> None:
        self.array = weakref.ref(array, partial(_on_array_collected, id(array)))
        self.locked: dict[tuple[str, str], Any] = {}  # valid while the array is read-only
        self.checksummed: dict[tuple[str, str], tuple[int, Any]] = {}  # valid while the checksum is the same
        self.was_writable = False  # before Forebay made the array read-only


_cache: dict[int, _CachedCopies] = {}
_mutex = threading.RLock()  # held during an upload, so that two threads do not upload the same array


def upload_once(array: Tree, to: str = "tensorflow", *, device: str = "auto", check: str = "lock") -> Any:
    """Return the array on the framework's device: uploaded at the first call, the same tensor later.

    `to` is torch, jax, tensorflow or cupy. `device` is "auto" (the framework's GPU if it finds one, else the CPU),
    "cpu" or a GPU such as "cuda:1". A dict, tuple or list of arrays returns a tree of tensors; each array has its own
    cache entry.

    The array becomes read-only until `forget(array)` or until it is collected. Views that were made before stay
    writable, because an array does not know its views. If you write to such views or to the array, pass `check="full"`.
    It reads the whole array at every call and uploads it again after a change. An array that you make writable by hand
    is uploaded again. Do not write to the tensor: all callers get the same one.

    >>> import numpy as np
    >>> data = np.ones((1000, 3), np.float32)
    >>> upload_once(data, "numpy") is upload_once(data, "numpy")
    True
    >>> data[0] = 2
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    >>> forget(data)
    >>> data[0] = 2
    """
    known = _cache.get(id(array))
    if known is not None and check == "lock" and not array.flags.writeable and known.array() is array:
        tensor = known.locked.get((to, device))
        if tensor is not None:
            return tensor
    return _upload(array, to, device, check)


def forget(array: Tree) -> None:
    """Drop the cached copies of an array or a tree, and make it writable again.

    Tensors that the caller still holds stay valid.
    """
    for leaf in flatten(array)[0]:
        with _mutex:
            known = _find(leaf)
            if known is not None:
                del _cache[id(leaf)]
                _make_writable(leaf, known)


def _upload(tree: Tree, to: str, device: str, check: str) -> Any:
    if check not in _CHECKS:
        raise SpecError(f"check={check!r} is unknown. Choose one of {', '.join(map(repr, _CHECKS))}.")
    if not isinstance(tree, np.ndarray):
        return _upload_tree(tree, to, device, check)
    to_device = uploader(to, device)
    with _mutex:
        known = _find(tree) or _CachedCopies(tree)
        tensor = _CHECKS[check](tree, known, (to, device), to_device)
        _cache[id(tree)] = known
    return tensor


def _find(array: Any) -> _CachedCopies | None:
    known = _cache.get(id(array))
    return known if known is not None and known.array() is array else None


def _upload_tree(tree: Tree, to: str, device: str, check: str) -> Any:
    leaves, structure = flatten(tree)
    for leaf, name in zip(leaves, structure.paths, strict=True):
        if not isinstance(leaf, np.ndarray):
            raise SpecError(
                f"{name!r} is a {type(leaf).__name__}, and upload_once can cache only NumPy arrays. Convert it with "
                "np.asarray before the loop."
            )
    return structure.unflatten([upload_once(leaf, to, device=device, check=check) for leaf in leaves])


def _upload_read_only(array: Array, known: _CachedCopies, key: tuple[str, str], to_device: Uploader) -> Any:
    if array.flags.writeable:  # at the first call, or after the user made it writable
        known.locked.clear()
    if not known.locked:
        _make_read_only(array, known)
    if key not in known.locked:
        try:
            known.locked[key] = to_device.upload(array)
        finally:
            if not known.locked:
                _make_writable(array, known)
    return known.locked[key]


def _upload_if_changed(array: Array, known: _CachedCopies, key: tuple[str, str], to_device: Uploader) -> Any:
    checksum = _checksum(array)  # before the copy, so that the next call notices a write during the copy
    if key not in known.checksummed or known.checksummed[key][0] != checksum:
        known.checksummed.pop(key, None)  # free the memory of the old copy first
        known.checksummed[key] = checksum, to_device.upload(array)
    return known.checksummed[key][1]


_CHECKS = {"lock": _upload_read_only, "full": _upload_if_changed}


def _checksum(array: Array) -> int:
    ArraySpec(array.shape, array.dtype).check("array")
    memory: Any = np.asarray(array).ravel("K").view(np.uint8)
    return zlib.crc32(memory)


def _make_read_only(array: Array, known: _CachedCopies) -> None:
    view: Any = array
    while isinstance(view, np.ndarray) and view.base is not None:
        if _is_base_writable(view) and (_is_foreign(view.base) or _base_references(view) > _PRIVATE):
            raise SpecError(
                f"the array of shape {array.shape} is a view of a writable {type(view.base).__name__} that other code "
                "may change. Upload that object, or a copy that you keep, or pass "
                'check="full".'
            )
        view = view.base
    known.was_writable = known.was_writable or array.flags.writeable
    array.flags.writeable = False


def _make_writable(array: Array, known: _CachedCopies) -> None:
    if known.was_writable:
        array.flags.writeable = True


def _is_base_writable(view: Array) -> bool:
    """Whether the base of the view can be written to, now or after a call of `forget`.

    For a base that is not an array, return whether NumPy may write to it. Memory-mapped files count as not writable,
    because other programs can write to them in any case.
    """
    base = view.base
    if isinstance(base, np.ndarray):
        known = _cache.get(id(base))
        return base.flags.writeable or (known is not None and known.was_writable)
    return view.flags.writeable and not isinstance(base, mmap.mmap)


def _is_foreign(base: Any) -> bool:
    """Whether another library owns the base. Then its reference count does not show all users."""
    return not isinstance(base, np.ndarray | memoryview | bytes | bytearray | mmap.mmap)


def _base_references(view: Array) -> int:
    """Count the references to the base of the view.

    NumPy wraps a buffer in a memoryview; count the references to the buffer then.
    """
    return sys.getrefcount(view.base.obj if isinstance(view.base, memoryview) else view.base)


_PRIVATE = _base_references(np.zeros(2)[:1])  # the reference count of a base that only one view uses


def _on_array_collected(key: int, _: object) -> None:
    """Drop the cache entry of an array that was garbage-collected.

    Python has not reused the array's id yet. This may run on any thread at any time, so it takes no lock.
    """
    _cache.pop(key, None)
