"""nvJPEG for the fake device: Pillow decodes, and the pixels arrive when the stream runs."""

# ruff: noqa: N802, N815 - the functions have the names of the library

import ctypes
import io

import numpy as np
import simplejpeg
from PIL import Image
from tests.support.fake_cuda.gpu import Work

from forebay.engines.cuda import nvjpeg

__all__ = ["FakeNvjpeg", "install_nvjpeg"]

SUCCESS, BAD_JPEG, NOT_SUPPORTED = 0, 3, 4
GRAY = 2  # the output format; 5 is RGB


class FakeNvjpeg:
    """The functions of the library. Handles are numbers. `states` has the batch size and output format of each state.

    The hardware does not decode the JPEG files in `refuses`. A batch with a file in `fails` fails.
    """

    def __init__(self, gpu):
        self._gpu = gpu
        self.refuses, self.fails = set(), set()
        self.states, self.parsed = {}, {}
        self.live = set()  # handles that were not destroyed
        self.batches = []  # the number of images of each call
        self._next_handle = 1

    def nvjpegCreateEx(self, backend, device_allocator, host_allocator, flags, handle):
        assert backend == nvjpeg._HARDWARE_BACKEND
        return self._create(handle)

    def nvjpegJpegStreamCreate(self, handle, stream):
        assert handle.value in self.live
        return self._create(stream)

    def nvjpegJpegStateCreate(self, handle, state):
        assert handle.value in self.live
        return self._create(state)

    def nvjpegJpegStreamParseHeader(self, handle, content, length, stream):
        assert length.value == len(content)
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(content)
        except ValueError:
            return BAD_JPEG
        channels = {"Gray": 1, "CMYK": 4, "YCCK": 4}.get(colorspace, 3)
        self.parsed[stream.value] = content, (width, height), channels, _read_orientation(content)
        return SUCCESS

    def nvjpegJpegStreamGetFrameDimensions(self, stream, width, height):
        width._obj.value, height._obj.value = self.parsed[stream.value][1]
        return SUCCESS

    def nvjpegJpegStreamGetComponentsNum(self, stream, channels):
        channels._obj.value = self.parsed[stream.value][2]
        return SUCCESS

    def nvjpegJpegStreamGetExifOrientation(self, stream, orientation):
        orientation._obj.value = self.parsed[stream.value][3]
        return SUCCESS

    def nvjpegDecodeBatchedSupported(self, handle, stream, is_refused):
        is_refused._obj.value = self.parsed[stream.value][0] in self.refuses
        return SUCCESS

    def nvjpegDecodeBatchedInitialize(self, handle, state, count, threads, output):
        self.states[state.value] = count, output
        return SUCCESS

    def nvjpegDecodeBatched(self, handle, state, data, sizes, images, stream):
        count, output = self.states[state.value]
        assert len(data) == len(sizes) == count
        self.batches.append(count)
        pointers = ctypes.cast(data, ctypes.POINTER(ctypes.c_void_p))
        contents = [ctypes.string_at(pointers[number], sizes[number]) for number in range(count)]
        if any(content in self.fails for content in contents):
            del self.states[state.value]
            return BAD_JPEG
        nbytes = count * nvjpeg._IMAGE.itemsize
        table = np.frombuffer(ctypes.string_at(images.value, nbytes), nvjpeg._IMAGE)
        for content, image in zip(contents, table, strict=True):
            pointer, pitch = int(image["channel"][0]), int(image["pitch"][0])
            self._queue_write(stream.value, pointer, pitch, _decode(content, output))
        return SUCCESS

    def nvjpegJpegStateDestroy(self, state):
        self.live.remove(state.value)

    nvjpegJpegStreamDestroy = nvjpegDestroy = nvjpegJpegStateDestroy

    def _create(self, handle):
        handle._obj.value = self._next_handle
        self.live.add(self._next_handle)
        self._next_handle += 1
        return SUCCESS

    def _queue_write(self, stream, pointer, pitch, lines):
        def write():
            for number, line in enumerate(lines):
                ctypes.memmove(pointer + number * pitch, line, len(line))

        self._gpu.put(stream, Work(write))


def _read_orientation(content):
    if b"Exif" not in content:
        return 0
    with Image.open(io.BytesIO(content)) as image:
        return image.getexif().get(0x0112, 0)


def _decode(content, output):
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("L" if output == GRAY else "RGB"))
    return [line.tobytes() for line in pixels]


def install_nvjpeg(monkeypatch, gpu):
    """Make feeds on the fake device decode with a FakeNvjpeg, and return this library."""
    library = FakeNvjpeg(gpu)
    nvjpeg.why_no_nvjpeg.cache_clear()
    monkeypatch.setattr(nvjpeg, "load_nvjpeg", lambda: nvjpeg._Library(library, library))
    return library
