"""`ImageFiller` fills slots with images that the device decodes and resizes.

The host reads the files. nvImageCodec uploads their bytes and decodes them, and a kernel resizes the images into the
slot. The host decodes the images that nvImageCodec refuses, and gathers all other leaves.
"""

import ctypes
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from forebay.core.encoded_images import crop_to_aspect_ratio
from forebay.core.recorder import Recorder
from forebay.core.rows import Rows, row_numbers
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, Layout, Structure
from forebay.engines.cuda.copy_plan import Destination
from forebay.engines.cuda.decode.device_decoder import DecodedImage, DeviceDecoder
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.pull.row_puller import RowSet
from forebay.engines.cuda.pull.staged_rows import StagedRows

__all__ = ["ImageFiller"]

MAX_IMAGES = 64  # of one launch; the same number as in images.cu
BLOCKS_PER_IMAGE = 16  # the same number as in images.cu
THREADS = 256  # per block


class _Image(ctypes.Structure):
    """The struct `Image` of images.cu, where the fields are documented."""

    _fields_ = (
        ("pixels", ctypes.c_void_p),
        ("row_stride", ctypes.c_longlong),
        ("height", ctypes.c_uint),
        ("width", ctypes.c_uint),
        ("place", ctypes.c_uint),
        ("padding", ctypes.c_uint),
    )


class _ResizeJob(ctypes.Structure):
    """The struct `ResizeJob` of images.cu, where the fields are documented."""

    _fields_ = (
        ("out", ctypes.c_void_p),
        ("batch_stride", ctypes.c_longlong),
        ("batch_rows", ctypes.c_uint),
        ("height", ctypes.c_uint),
        ("width", ctypes.c_uint),
        ("channels", ctypes.c_uint),
        ("images", _Image * MAX_IMAGES),
    )


class ImageFiller:
    """Fills slots with images and the other leaves of a source. Several threads may use it."""

    all_resident = False

    def __init__(self, engine: CudaEngine, source: AbstractSource, *, threads: int, recorder: Recorder) -> None:
        images = source.encoded_images
        assert images is not None
        self._engine, self._source, self._images, self._recorder = engine, source, images, recorder
        self._height, self._width, self._channels = source.specs[images.leaf].batch_shape(1)[1:]
        self._resize = engine.device.kernel("resize_images", "images.cu")
        others = [leaf for leaf in range(len(source.specs)) if leaf != images.leaf]
        self._other_leaves = others
        self._staged_others = StagedRows(engine.device, _Leaves(source, others), threads=threads)
        self._staged_images = StagedRows(engine.device, _Leaves(source, [images.leaf]), threads=threads)
        self._decoders: dict[int, tuple[DeviceDecoder, threading.Lock]] = {}  # by the handle of their stream
        self._lock = threading.Lock()
        self._device_images = self._host_images = 0
        recorder.add_counters("decoded_images", self._counters)

    def begin_pass(self) -> None:
        """Do nothing, because no rows are kept."""

    def only_enqueues(self, memory: CudaMemory) -> bool:
        """Return False, because a fill reads files."""
        return False

    def fill(self, memory: CudaMemory, layout: Layout, rows: RowSet) -> None:
        """Read and decode the images of these rows into the slot, and gather the other leaves."""
        began = time.perf_counter()
        numbers = rows.numbers()
        contents = self._images.read(numbers)
        read_at = time.perf_counter()
        self._recorder.add_span("read", read_at - began, nbytes=sum(len(content or b"") for content in contents))
        with self._engine.fill_scope(memory):
            decoder, lock = self._decoder(memory)
            with lock:
                is_decoded = self._decode(decoder, memory, layout, contents)
            self._decode_on_host(memory, layout, numbers, np.flatnonzero(~is_decoded))
            if self._other_leaves:
                destinations = [_destination(memory, layout, leaf) for leaf in self._other_leaves]
                specs = [layout.specs[leaf] for leaf in self._other_leaves]
                self._staged_others.upload(memory.stream, destinations, specs, numbers)
        with self._lock:
            self._device_images += int(np.count_nonzero(is_decoded))
            self._host_images += int(np.count_nonzero(~is_decoded))
        nbytes = rows.count * sum(spec.nbytes for spec in layout.specs)
        self._recorder.add_span("decode", time.perf_counter() - read_at, nbytes=nbytes)

    def close(self) -> None:
        """Wait for queued fills, then release memory. No fill may begin after this."""
        with ExitStack() as stack:  # runs all callbacks, the last one first, also after an error
            stack.callback(self._decoders.clear)
            stack.callback(self._staged_others.close)
            stack.callback(self._staged_images.close)
            stack.callback(self._engine.drain)

    def _counters(self) -> dict[str, int]:
        return {"device": self._device_images, "host": self._host_images}

    def _decoder(self, memory: CudaMemory) -> tuple[DeviceDecoder, threading.Lock]:
        """Return the decoder of the slot's stream."""
        with self._lock:
            handle = memory.stream.handle
            if handle not in self._decoders:
                decoder = DeviceDecoder(self._engine.device.index, self._images, self._channels)
                self._decoders[handle] = decoder, threading.Lock()
            return self._decoders[handle]

    def _decode(
        self, decoder: DeviceDecoder, memory: CudaMemory, layout: Layout, contents: Sequence[bytes | None]
    ) -> Array:
        """Decode images on the device. Return for each row whether it is done."""
        is_decoded = np.zeros(len(contents), bool)
        for decoded in decoder.decode(contents, memory.stream):
            images = [image for image in decoded if self._has_valid_size(image)]
            for start in range(0, len(images), MAX_IMAGES):
                self._queue_resize(memory, layout, images[start : start + MAX_IMAGES])
            is_decoded[[image.position for image in images]] = True
        return is_decoded

    def _has_valid_size(self, image: DecodedImage) -> bool:
        """Return whether the image may become a row. If not, the host raises the error."""
        return self._images.resizes or (image.height, image.width) == (self._height, self._width)

    def _queue_resize(self, memory: CudaMemory, layout: Layout, images: Sequence[DecodedImage]) -> None:
        destination = _destination(memory, layout, self._images.leaf)
        table = (_Image * MAX_IMAGES)(*map(self._describe, images))
        sizes = self._height, self._width, self._channels
        job = _ResizeJob(destination.pointer, destination.batch_stride, destination.batch_rows, *sizes, table)
        self._resize.launch(memory.stream, job, blocks=len(images) * BLOCKS_PER_IMAGE, threads=THREADS)

    def _describe(self, image: DecodedImage) -> _Image:
        rows, columns = slice(0, image.height), slice(0, image.width)
        if self._images.crops:
            rows, columns = crop_to_aspect_ratio((image.height, image.width), (self._height, self._width))
        pixels = image.pointer + rows.start * image.row_stride + columns.start * self._channels
        return _Image(pixels, image.row_stride, rows.stop - rows.start, columns.stop - columns.start, image.position, 0)

    def _decode_on_host(self, memory: CudaMemory, layout: Layout, numbers: Rows, positions: Array) -> None:
        """Decode some images on the host, and upload each to its row."""
        leaf, known = self._images.leaf, row_numbers(numbers)
        destination, spec = _destination(memory, layout, leaf), layout.specs[leaf]
        for position, pointer in zip(positions.tolist(), destination.addresses(positions).tolist(), strict=True):
            row = Destination(pointer, 1, spec.nbytes, spec.nbytes)
            self._staged_images.upload(memory.stream, [row], [spec], np.array([known[position]]))


class _Leaves:
    """A source with only some leaves of another source."""

    def __init__(self, source: AbstractSource, leaves: Sequence[int]) -> None:
        self._source, self._leaves = source, tuple(leaves)
        self.specs = [source.specs[leaf] for leaf in leaves]
        self.structure = Structure(tuple, tuple(range(len(leaves))), (Structure(None),) * len(leaves))

    def __len__(self) -> int:
        return len(self._source)

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        for target, leaf in zip(out, self._source.gather_leaves(self._leaves, rows), strict=True):
            target[...] = leaf

    def memory(self) -> Sequence[MemoryRegion]:
        return []

    def close(self) -> None:
        """Do nothing: the source belongs to the pipeline."""


def _destination(memory: CudaMemory, layout: Layout, leaf: int) -> Destination:
    pointer = memory.pointer + layout.offsets[leaf]
    return Destination(pointer, layout.batch_rows, layout.strides[leaf], layout.specs[leaf].nbytes)
