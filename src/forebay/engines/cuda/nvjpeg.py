"""Calls of nvJPEG through ctypes, to decode JPEG images with a GPU's hardware decoders.

One call decodes a batch on all hardware decoders. An H200 decodes 41,000 images of 500 x 375 pixels per second in this
way. The Python API of nvImageCodec, which uses the same hardware, decodes 16,300 images per second with one `Decoder`
object and 23,300 with two (docs/measurements.md#jpeg-decoding-on-a-gpu).
"""

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from forebay.core.spec import Array
from forebay.errors import FrameworkError

__all__ = ["JpegHeader", "Nvjpeg", "load_nvjpeg", "why_no_nvjpeg"]

_LIBRARY, _FOLDER = "libnvjpeg.so.13", "cu13/lib"  # the folder inside the package `nvidia`
_HARDWARE_BACKEND = 3  # NVJPEG_BACKEND_HARDWARE
_INTERPOLATE_COLORS = 1 << 5  # interpolate colors that have a lower resolution, as libjpeg-turbo does
_OUTPUT_GRAY, _OUTPUT_RGB = 2, 5  # luma; RGB with interleaved channels
_NORMAL_ORIENTATION = 1  # EXIF orientation of an image that needs no rotation

# A thread holds this lock while it decodes. One call uses all hardware decoders, so parallel calls are not faster.
_hardware_lock = threading.Lock()


# The struct `nvjpegImage_t`: the memory of a decoded image, by channel.
_IMAGE = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])


class JpegHeader(NamedTuple):
    """The size of a JPEG image before its EXIF orientation is applied, and this orientation."""

    height: int
    width: int
    orientation: int  # 1 to 8


@dataclass(frozen=True, slots=True)
class _Library:
    """The functions of nvJPEG, loaded twice."""

    functions: Any  # functions that release the GIL
    short: Any  # functions that keep the GIL, for short calls: releasing the GIL takes longer than the call


class Nvjpeg:
    """One nvJPEG decoder.

    One thread may use it at a time. The decoder's GPU must be the current CUDA device of the thread.
    """

    def __init__(self, *, is_gray: bool) -> None:
        self._library = load_nvjpeg()
        self._output = _OUTPUT_GRAY if is_gray else _OUTPUT_RGB
        self._handle, self._stream, self._state = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._batch_size = 0  # images for which `_state` was initialized; 0 if it was not initialized
        # `parse` passes these variables to nvJPEG, which writes its results to them. New variables in each call would
        # take half of the time of `parse`.
        self._width, self._height, self._channels = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        self._orientation, self._is_refused = ctypes.c_int(), ctypes.c_int()
        self._frame_arguments = self._stream, _out(self._width), _out(self._height)
        self._channels_arguments = self._stream, _out(self._channels)
        self._orientation_arguments = self._stream, _out(self._orientation)
        self._support_arguments = self._handle, self._stream, _out(self._is_refused)
        functions = self._library.functions
        flags = ctypes.c_uint(_INTERPOLATE_COLORS)
        _check("nvjpegCreateEx", functions.nvjpegCreateEx(_HARDWARE_BACKEND, None, None, flags, _out(self._handle)))
        _check("nvjpegJpegStreamCreate", functions.nvjpegJpegStreamCreate(self._handle, _out(self._stream)))
        _check("nvjpegJpegStateCreate", functions.nvjpegJpegStateCreate(self._handle, _out(self._state)))

    def parse(self, content: bytes) -> JpegHeader | None:
        """Return the header of a JPEG file; None if the hardware cannot decode this image."""
        short = self._library.short
        failed = (
            short.nvjpegJpegStreamParseHeader(self._handle, content, ctypes.c_size_t(len(content)), self._stream)
            or short.nvjpegJpegStreamGetFrameDimensions(*self._frame_arguments)
            or short.nvjpegJpegStreamGetComponentsNum(*self._channels_arguments)
            or short.nvjpegJpegStreamGetExifOrientation(*self._orientation_arguments)
            or short.nvjpegDecodeBatchedSupported(*self._support_arguments)
        )
        if failed or self._is_refused.value or self._channels.value not in (1, 3):
            return None
        orientation = self._orientation.value if self._orientation.value in range(1, 9) else _NORMAL_ORIENTATION
        return JpegHeader(self._height.value, self._width.value, orientation)

    def decode(self, contents: Sequence[bytes], pointers: Array, pitches: Array, stream: int) -> bool:
        """Decode JPEG files into device memory. Return False if nvJPEG failed.

        After a failure, the pixels of all images are undefined. `pointers` are the device addresses of the images, and
        `pitches` are the bytes from one line of pixels to the next. The call returns when the hardware has decoded the
        images. Kernels that nvJPEG queues on `stream` may still run.
        """
        functions, count = self._library.functions, len(contents)
        data, sizes = (ctypes.c_char_p * count)(*contents), (ctypes.c_size_t * count)(*map(len, contents))
        images = np.zeros(count, _IMAGE)
        images["channel"][:, 0], images["pitch"][:, 0] = pointers, pitches
        with _hardware_lock:
            if count != self._batch_size:
                self._batch_size = 0
                initialize = functions.nvjpegDecodeBatchedInitialize
                if initialize(self._handle, self._state, count, 1, self._output):  # for example, memory is short
                    return False
                self._batch_size = count
            decode = functions.nvjpegDecodeBatched
            images_pointer, stream_handle = ctypes.c_void_p(images.ctypes.data), ctypes.c_void_p(stream)
            status = decode(self._handle, self._state, data, sizes, images_pointer, stream_handle)
        if status:
            self._batch_size = 0
        return not status

    def close(self) -> None:
        """Free the decoder. All work that nvJPEG has queued must be done."""
        functions = self._library.functions
        for destroy, handle in (
            (functions.nvjpegJpegStateDestroy, self._state),
            (functions.nvjpegJpegStreamDestroy, self._stream),
            (functions.nvjpegDestroy, self._handle),
        ):
            if handle:
                destroy(handle)
                handle.value = None


@cache
def why_no_nvjpeg(device_index: int) -> str:
    """Return why this device cannot decode images; an empty string if it can.

    The device must be the current CUDA device.
    """
    try:
        load_nvjpeg()
    except FrameworkError:
        return "nvJPEG is not installed (pip install 'forebay[images-cu13]')"
    try:
        Nvjpeg(is_gray=False).close()
    except FrameworkError as error:
        return f"the GPU has no hardware decoders ({str(error).partition('. ')[0]})"
    return ""


@cache
def load_nvjpeg() -> _Library:
    """Return the functions of nvJPEG. Raise FrameworkError if nvJPEG is not installed."""
    for path in _paths():
        try:
            return _Library(ctypes.CDLL(path), ctypes.PyDLL(path))
        except OSError:
            continue
    raise FrameworkError(
        "decoder='nvjpeg' needs nvJPEG for CUDA 13, which is not installed. Run: pip install 'forebay[images-cu13]'. "
        "Or pass decoder='auto'.",
        name="nvidia.nvjpeg",
    )


def _paths() -> Iterator[str]:
    """Yield paths of the library: in NVIDIA's packages, then in the system's search path."""
    package = find_spec("nvidia")
    folders = list(package.submodule_search_locations or ()) if package is not None else []
    yield from (str(path) for folder in folders if (path := Path(folder, _FOLDER, _LIBRARY)).is_file())
    yield _LIBRARY


_out: Callable[[Any], Any] = ctypes.byref  # passes a variable to which a C function writes


def _check(function: str, status: int) -> None:
    if status:
        raise FrameworkError(
            f"{function} of nvJPEG failed with status {status}. Hardware decoders exist in the data-center GPUs A100, "
            "H100, H200 and later. Pass decoder='auto'.",
            name="nvidia.nvjpeg",
        )
