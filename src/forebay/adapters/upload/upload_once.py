"""upload_once: an array is uploaded once and found again by its identity, so a loop may ask at every step.

A copy that is kept must not become stale unseen. The array is therefore read-only as long as its copies are
remembered: whoever writes to it is told so by NumPy, at the line that writes. Where arrays must stay writable,
`check="full"` compares a checksum of their contents (CRC-32) at every call instead.
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


class _Remembered:
    """One array's copies, by framework and device."""

    __slots__ = ("array", "checked", "kept", "unlock")

    def __init__(self, array: Array) -> None:
        self.array = weakref.ref(array, partial(_collected, id(array)))
        self.kept: dict[tuple[str, str], Any] = {}  # valid while the array is read-only
        self.checked: dict[tuple[str, str], tuple[int, Any]] = {}  # valid while the checksum is the same
        self.unlock = False  # whether it was writable before


_remembered: dict[int, _Remembered] = {}
_mutex = threading.RLock()  # held while an array is being uploaded, so that nobody uploads it twice


def upload_once(array: Tree, to: str = "tensorflow", *, device: str = "auto", check: str = "lock") -> Any:
    """The array on the framework's device: uploaded at the first call, the same tensor at every later one.

    `to` is torch, jax, tensorflow or cupy; `device` is the framework's GPU if it sees one, else the CPU, unless given
    ("cpu", "cuda:1"). A dict, tuple or list of arrays gives a tree of tensors, each remembered by its own array.

    The array is made read-only until `forget(array)` or its end. Views of it that were made before stay writable, as
    no array knows its views: where those are written to, or the array itself must be, pass `check="full"`, which
    reads the whole array at every call and uploads it again if it has changed. An array that was made writable by
    hand is uploaded again. Do not write to the tensor: everybody who asks gets the same one.

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
    known = _remembered.get(id(array))
    if known is not None and check == "lock" and not array.flags.writeable and known.array() is array:
        tensor = known.kept.get((to, device))
        if tensor is not None:
            return tensor
    return _upload(array, to, device, check)


def forget(array: Tree) -> None:
    """Drop what `upload_once` remembers of an array, or of each array of a tree, and let it be written to again.

    Tensors that the caller still holds stay as they are.
    """
    for leaf in flatten(array)[0]:
        with _mutex:
            known = _find(leaf)
            if known is not None:
                del _remembered[id(leaf)]
                _unlock(leaf, known)


def _upload(tree: Tree, to: str, device: str, check: str) -> Any:
    if check not in _WAYS:
        raise SpecError(f"check={check!r} is no way to notice changes: choose one of {', '.join(map(repr, _WAYS))}.")
    if not isinstance(tree, np.ndarray):
        return _upload_tree(tree, to, device, check)
    place = uploader(to, device)
    with _mutex:
        known = _find(tree) or _Remembered(tree)
        tensor = _WAYS[check](tree, known, (to, device), place)
        _remembered[id(tree)] = known
    return tensor


def _find(array: Any) -> _Remembered | None:
    known = _remembered.get(id(array))
    return known if known is not None and known.array() is array else None


def _upload_tree(tree: Tree, to: str, device: str, check: str) -> Any:
    leaves, structure = flatten(tree)
    for leaf, name in zip(leaves, structure.paths, strict=True):
        if not isinstance(leaf, np.ndarray):
            raise SpecError(
                f"{name!r} is a {type(leaf).__name__}, and only NumPy arrays are found again by their identity: make "
                "one with np.asarray before the loop."
            )
    return structure.unflatten([upload_once(leaf, to, device=device, check=check) for leaf in leaves])


def _upload_locked(array: Array, known: _Remembered, key: tuple[str, str], place: Uploader) -> Any:
    if array.flags.writeable:  # at the first call, or because somebody made it so
        known.kept.clear()
    if not known.kept:
        _lock(array, known)
    if key not in known.kept:
        try:
            known.kept[key] = place.upload(array)
        finally:
            if not known.kept:
                _unlock(array, known)
    return known.kept[key]


def _upload_changed(array: Array, known: _Remembered, key: tuple[str, str], place: Uploader) -> Any:
    checksum = _checksum(array)  # before the copy: what is written meanwhile is noticed at the next call
    if key not in known.checked or known.checked[key][0] != checksum:
        known.checked.pop(key, None)  # its memory first
        known.checked[key] = checksum, place.upload(array)
    return known.checked[key][1]


_WAYS = {"lock": _upload_locked, "full": _upload_changed}


def _checksum(array: Array) -> int:
    ArraySpec(array.shape, array.dtype).check("array")
    memory: Any = np.asarray(array).ravel("K").view(np.uint8)
    return zlib.crc32(memory)


def _lock(array: Array, known: _Remembered) -> None:
    view: Any = array
    while isinstance(view, np.ndarray) and view.base is not None:
        if _writable(view) and (_foreign(view.base) or _references(view) > _PRIVATE):
            raise SpecError(
                f"the array of shape {array.shape} is a view of a writable {type(view.base).__name__} that may be in "
                "use: what is written there would change it unseen. Upload that one, or a copy that you keep, or pass "
                'check="full".'
            )
        view = view.base
    known.unlock = known.unlock or array.flags.writeable
    array.flags.writeable = False


def _unlock(array: Array, known: _Remembered) -> None:
    if known.unlock:
        array.flags.writeable = True


def _writable(view: Array) -> bool:
    """Whether what the view looks at can be written to, now or after somebody forgets it.

    What is not an array is judged by what it let NumPy do. A mapped file can be written to by other programs anyway.
    """
    base = view.base
    if isinstance(base, np.ndarray):
        known = _remembered.get(id(base))
        return base.flags.writeable or (known is not None and known.unlock)
    return view.flags.writeable and not isinstance(base, mmap.mmap)


def _foreign(base: Any) -> bool:
    """Whether it is another library's, such as a tensor of PyTorch: who else sees that memory, no count tells."""
    return not isinstance(base, np.ndarray | memoryview | bytes | bytearray | mmap.mmap)


def _references(view: Array) -> int:
    """How many refer to what the view looks at, itself or through the memoryview that NumPy makes of a buffer."""
    return sys.getrefcount(view.base.obj if isinstance(view.base, memoryview) else view.base)


_PRIVATE = _references(np.zeros(2)[:1])  # the view alone


def _collected(key: int, _: object) -> None:
    """Runs wherever the array's last reference goes, so it takes no lock; the number is not in use again yet."""
    _remembered.pop(key, None)
