"""`upload_once`: uploads an array once and returns the same tensor at every later call.

A cached copy must not become stale. So Forebay makes the array read-only while copies are cached, and NumPy raises an
error at a line that writes to it. For arrays that must stay writable, `check="full"` instead compares a CRC-32 checksum
of their contents at every call.
"""

import mmap
import sys
import threading
import weakref
import zlib
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from forebay.adapters.upload.uploaders import HostUploader, Uploader
from forebay.core import registry
from forebay.core.progress_line import ProgressLine
from forebay.core.spec import Array, ArraySpec, Tree, flatten, format_nbytes
from forebay.errors import DeviceError, FrameworkError, SpecError
from forebay.pipeline.target import Target, resolve_target

__all__ = ["forget", "upload_once"]

_FRAMEWORKS = ("torch", "jax", "tensorflow", "cupy", "numpy")
# 1 GiB. The checksum of a smaller array gets no progress line, because each progress line needs a thread.
MIN_PROGRESS_NBYTES = 1 << 30


class _CachedCopies:
    """The cached copies of one array, by framework and device."""

    __slots__ = ("array", "checksummed_copies", "read_only_copies", "was_writable")

    def __init__(self, array: Array) -> None:
        self.array = weakref.ref(array, partial(_on_array_collected, id(array)))
        self.read_only_copies: dict[tuple[str, str], Any] = {}  # valid while the array is read-only
        self.checksummed_copies: dict[tuple[str, str], tuple[int, Any]] = {}  # valid while the checksum is the same
        self.was_writable = False  # True if the array was writable before Forebay made it read-only


_cache: dict[int, _CachedCopies] = {}  # by id(array)
_lock = threading.RLock()  # held during an upload, so that two threads do not upload the same array


def upload_once(array: Tree, to: str = "tensorflow", *, device: str = "auto", check: str = "lock") -> Any:
    """Upload an array at the first call, and return the same tensor at every call.

    The array becomes read-only until you call `forget(array)`. Views that you made earlier stay writable, because an
    array does not know its views. If you make the array writable yourself, the next call uploads it again. Do not write
    to the tensor, because all callers share it.

    Args:
        array: An array, or a dict, tuple or list of arrays, which gives a tree of tensors; each array has its own cache
            entry.
        to: The framework: `"torch"`, `"jax"`, `"tensorflow"`, `"cupy"` or `"numpy"`.
        device: `"auto"` (the framework's GPU if it finds one, else the CPU), `"cpu"` or a GPU such as `"cuda:1"`.
        check: With `"lock"`, the array becomes read-only. If you write to the array or to its views, pass `"full"`:
            then every call reads the whole array, and uploads it again after a change.

    Examples:
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
    cached = _cache.get(id(array))
    if cached is not None and check == "lock" and not array.flags.writeable and cached.array() is array:
        tensor = cached.read_only_copies.get((to, device))
        if tensor is not None:
            return tensor
    return _upload(array, to, device, check)


def forget(array: Tree) -> None:
    """Drop the cached copies of an array.

    Arrays that `upload_once` made read-only become writable again. Tensors that you still hold stay valid.

    Args:
        array: The array, or the tree of arrays, that was passed to `upload_once`.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> table = np.arange(4.0)
        >>> uploaded = fb.upload_once(table, to="numpy")
        >>> fb.forget(table)
        >>> table[0] = 1.0  # can be changed again
    """
    for leaf in flatten(array)[0]:
        with _lock:
            cached = _find_cached(leaf)
            if cached is not None:
                del _cache[id(leaf)]
                _make_writable(leaf, cached)


def _upload(tree: Tree, to: str, device: str, check: str) -> Any:
    if check not in _UPLOAD_FUNCTIONS:
        raise SpecError(f"check={check!r} is unknown. Choose one of {', '.join(map(repr, _UPLOAD_FUNCTIONS))}.")
    if not isinstance(tree, np.ndarray):
        return _upload_tree(tree, to, device, check)
    with _lock:
        cached = _find_cached(tree) or _CachedCopies(tree)
        tensor = _UPLOAD_FUNCTIONS[check](tree, cached, (to, device))
        _cache[id(tree)] = cached
    return tensor


def _find_cached(array: Any) -> _CachedCopies | None:
    cached = _cache.get(id(array))
    return cached if cached is not None and cached.array() is array else None


def _upload_tree(tree: Tree, to: str, device: str, check: str) -> Any:
    leaves, structure = flatten(tree)
    for leaf, name in zip(leaves, structure.paths, strict=True):
        if not isinstance(leaf, np.ndarray):
            raise SpecError(
                f"{name!r} is a {type(leaf).__name__}, and upload_once can cache only NumPy arrays. Convert it with "
                "np.asarray before the loop."
            )
    return structure.unflatten([upload_once(leaf, to, device=device, check=check) for leaf in leaves])


def _uploader_for(to: str, device: str) -> Uploader:
    """Return the uploader for a device and for the framework named `to`.

    The device "auto" is the framework's default GPU, or the CPU if the framework finds no GPU.
    """
    try:
        # Find the default GPU at each upload, because the script may choose another one between two uploads.
        return _cached_uploader(to, _default_device(to) if device == "auto" else device)
    except FrameworkError as error:
        raise _explain_framework_error(error, to) from error


@cache
def _cached_uploader(to: str, device: str) -> Uploader:
    uploader = _make_uploader(resolve_target(device, to))
    if to == "tensorflow":
        uploader = import_module("forebay.adapters.upload.tensorflow").EagerScopeUploader(uploader)
    if to == "jax":
        uploader = import_module("forebay.adapters.upload.jax").UntracedUploader(uploader)
    return uploader


def _explain_framework_error(error: FrameworkError, to: str) -> FrameworkError:
    """Return a FrameworkError that tells the user how to call `upload_once` on this machine.

    Suggest an installed framework, and prefer one that the script has imported.
    """
    if to in _FRAMEWORKS and not isinstance(error.__cause__, ModuleNotFoundError):
        return error  # it needs no other text: for example, the version is too old
    meant = registry.framework_name(str(getattr(to, "__name__", to)))  # `to` may be a module
    if meant != to and meant in _FRAMEWORKS:
        advice = f"Write upload_once(array, to={meant!r})."
        return FrameworkError(f"upload_once() does not know {to!r}. {advice}", name=str(to))
    installed = [name for name in _FRAMEWORKS if name in sys.modules or find_spec(name) is not None]
    installed.sort(key=lambda name: name not in sys.modules)
    advice = f"Write upload_once(array, to={installed[0]!r})." if installed else f"Run: pip install {to}."
    state = f"{error.name} is not installed" if to in _FRAMEWORKS else "Forebay does not know this framework"
    return FrameworkError(f"upload_once() cannot make arrays of {to!r}: {state}. {advice}", name=error.name)


def _make_uploader(target: Target) -> Uploader:
    if target.device_handoff is None:
        return HostUploader(target.hand_off)
    module = import_module("forebay.adapters.upload.cuda")
    cuda_uploader: Uploader = module.CudaUploader(target.engine, target.device_handoff)
    return cuda_uploader


def _default_device(to: str) -> str:
    """Return the framework's default GPU, or "cpu" if the framework finds no GPU.

    Return the GPU even if Forebay cannot upload to it, so that the upload raises an error. After an upload to the CPU,
    the script would fail later, because its other tensors are on the GPU.
    """
    try:
        device_handoff = registry.load_hand_off(to)().for_device(None)
    except DeviceError:
        return "cpu"
    return f"cuda:{device_handoff.index}"


def _upload_read_only(array: Array, cached: _CachedCopies, key: tuple[str, str]) -> Any:
    """Make an array read-only, and return its cached copy.

    Upload the array if there is none. `key` has the framework and the device.
    """
    if array.flags.writeable:  # at the first call, or after the user made the array writable
        cached.read_only_copies.clear()
    if not cached.read_only_copies:
        _make_read_only(array, cached)
    if key not in cached.read_only_copies:
        try:
            cached.read_only_copies[key] = _uploader_for(*key).upload(array)
        finally:
            if not cached.read_only_copies:
                _make_writable(array, cached)
    return cached.read_only_copies[key]


def _upload_if_changed(array: Array, cached: _CachedCopies, key: tuple[str, str]) -> Any:
    """Return the cached copy of an array.

    Upload the array again if its checksum has changed. `key` has the framework and the device.
    """
    checksum = _checksum(array)  # before the copy, so that the next call notices a write during the copy
    if key not in cached.checksummed_copies or cached.checksummed_copies[key][0] != checksum:
        cached.checksummed_copies.pop(key, None)  # free the memory of the old copy first
        cached.checksummed_copies[key] = checksum, _uploader_for(*key).upload(array)
    return cached.checksummed_copies[key][1]


_UPLOAD_FUNCTIONS = {"lock": _upload_read_only, "full": _upload_if_changed}  # by the option `check`


def _checksum(array: Array) -> int:
    ArraySpec(array.shape, array.dtype).check("array")
    memory: Any = np.asarray(array).ravel("K").view(np.uint8)
    if memory.nbytes < MIN_PROGRESS_NBYTES:
        return zlib.crc32(memory)
    with ProgressLine(f"computing the checksum of {format_nbytes(memory.nbytes)}"):
        return zlib.crc32(memory)


def _make_read_only(array: Array, cached: _CachedCopies) -> None:
    """Make an array read-only, or raise SpecError if other code can write to its memory."""
    view: Any = array
    while isinstance(view, np.ndarray) and view.base is not None:
        if _is_base_writable(view) and (_is_foreign(view.base) or _count_base_references(view) > _UNSHARED_COUNT):
            raise SpecError(
                f"the array of shape {array.shape} is a view of a writable {type(view.base).__name__} that other code "
                "may change. Upload a copy and keep it in a variable, or pass "
                'check="full".'
            )
        view = view.base
    cached.was_writable = cached.was_writable or array.flags.writeable
    array.flags.writeable = False


def _make_writable(array: Array, cached: _CachedCopies) -> None:
    if cached.was_writable:
        array.flags.writeable = True


def _is_base_writable(view: Array) -> bool:
    """Return whether code can write to the base of a view, now or after `forget`.

    If the base is not an array, return whether the view is writable. A memory-mapped file counts as not writable:
    other programs can write to the file even if Forebay refuses the array, so an error would not protect the copy.
    """
    base = view.base
    if isinstance(base, np.ndarray):
        cached = _cache.get(id(base))
        return base.flags.writeable or (cached is not None and cached.was_writable)
    return view.flags.writeable and not isinstance(base, mmap.mmap)


def _is_foreign(base: Any) -> bool:
    """Return whether another library owns the base.

    The reference count of such a base does not show all users of the memory.
    """
    return not isinstance(base, np.ndarray | memoryview | bytes | bytearray | mmap.mmap)


def _count_base_references(view: Array) -> int:
    """Return the number of references to the base of a view.

    If NumPy has wrapped a buffer in a memoryview, count the references to the buffer.
    """
    return sys.getrefcount(view.base.obj if isinstance(view.base, memoryview) else view.base)


_UNSHARED_COUNT = _count_base_references(np.zeros(2)[:1])  # references to a base that only one view uses


def _on_array_collected(key: int, _: object) -> None:
    """Drop the cache entry of an array that Python has deleted.

    Python has not reused the array's id yet. This may run on any thread at any time, so it acquires no lock.
    """
    _cache.pop(key, None)
