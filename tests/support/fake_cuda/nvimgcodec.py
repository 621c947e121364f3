"""nvImageCodec for the fake device: Pillow decodes, and the pixels arrive when the stream runs."""

import ctypes
import io
import sys
from enum import Enum
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
from PIL import Image, ImageOps
from tests.support.fake_cuda.machine import Work

__all__ = ["install_nvimgcodec"]


class BackendKind(Enum):
    HW_GPU_ONLY = 1
    GPU_ONLY = 2
    HYBRID_CPU_GPU = 3


class ColorSpec(Enum):
    GRAY = 1
    SRGB = 2


class CodeStream:
    def __init__(self, content):
        with Image.open(io.BytesIO(content)) as image:
            self.width, self.height = image.size
            self.num_channels = len(image.getbands())
        self.content = content


class DecodedImage:
    """An image in device memory."""

    def __init__(self, machine):
        self._machine, self._memory, self.capacity = machine, None, 0

    def resize(self, pixels, handle):
        self.height, self.width, self.num_channels = pixels.shape
        self._stride = self.width * self.num_channels
        nbytes = self._stride * self.height
        if nbytes > self.capacity:
            self._memory, self.capacity = self._machine.allocate(nbytes, handle), nbytes

    @property
    def pointer(self):
        return self._memory.pointer

    @property
    def __cuda_array_interface__(self):
        shape = self.height, self.width, self.num_channels
        return {"data": (self.pointer, False), "shape": shape, "strides": (self._stride, self.num_channels, 1)}

    def queue_write(self, pixels, handle):
        lines = [line.tobytes() for line in pixels]
        pointers = [self.pointer + number * self._stride for number in range(len(lines))]

        def write():
            for pointer, line in zip(pointers, lines, strict=True):
                ctypes.memmove(pointer, line, len(line))

        self._machine.put(handle, Work(write))


class Decoder:
    def __init__(self, machine, *, device_id, backends):
        self._machine, self.backends = machine, backends
        machine.decoders.append(self)
        self.reused = 0

    def decode(self, code_streams, *, images, params, cuda_stream):
        self.reused += len(images or ())
        buffers = images or [DecodedImage(self._machine) for _ in code_streams]
        return [
            self._decode(code_stream, image, params, cuda_stream)
            for code_stream, image in zip(code_streams, buffers, strict=True)
        ]

    def _decode(self, code_stream, image, params, handle):
        try:
            with Image.open(io.BytesIO(code_stream.content)) as opened:
                upright = ImageOps.exif_transpose(opened) if params.apply_exif_orientation else opened
                pixels = np.asarray(upright.convert("L" if params.color_spec is ColorSpec.GRAY else "RGB"))
        except OSError:
            return None
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        image.resize(pixels, handle)
        image.queue_write(pixels, handle)
        return image


def install_nvimgcodec(monkeypatch, machine):
    """Make `from nvidia import nvimgcodec` import these classes. The decoders are in `machine.decoders`."""
    machine.decoders = []
    made = ModuleType("nvidia.nvimgcodec")
    made.Backend = lambda kind, load_hint=1.0: SimpleNamespace(kind=kind, load_hint=load_hint)
    made.DecodeParams = lambda **params: SimpleNamespace(**params)
    made.Decoder = partial(Decoder, machine)
    made.BackendKind, made.ColorSpec, made.CodeStream = BackendKind, ColorSpec, CodeStream
    parent = ModuleType("nvidia")
    parent.nvimgcodec = made
    monkeypatch.setitem(sys.modules, "nvidia", parent)
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", made)
