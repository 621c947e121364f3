"""`ImageFiller` fills slots with images that the device decodes and resizes.

The host reads the files. nvJPEG uploads their bytes and decodes them, and a kernel resizes the images into the slot.
The host decodes the images that nvJPEG refuses, and gathers all other leaves. If the host cannot decode an image either
and the source has an `error_limit`, the nearest good image of its batch replaces it.
"""

import ctypes
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from forebay.core.recorder import Recorder
from forebay.core.rows import Rows, row_count, row_numbers
from forebay.core.skipped_rows import RowRepair, SkippedRow
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array, Layout, Structure
from forebay.engines.cuda.decode.device_decoder import DecodedImages, DeviceDecoder
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.memory import CudaMemory
from forebay.engines.cuda.pull.row_puller import RowSet
from forebay.engines.cuda.pull.staged_rows import StagedRows

__all__ = ["ImageFiller"]

MAX_IMAGES = 64  # images per launch of the kernel; the same number as in images.cu
BLOCKS_PER_IMAGE = 16  # thread blocks; the same number as in images.cu
THREADS = 256  # threads per block


# The struct `Image` of images.cu, where the fields are documented.
_IMAGE = np.dtype(
    [
        ("pixels", np.uint64),
        ("line_stride", np.int64),
        ("pixel_stride", np.int64),
        ("height", np.uint32),
        ("width", np.uint32),
        ("top", np.float32),
        ("left", np.float32),
        ("part_height", np.float32),
        ("part_width", np.float32),
        ("place", np.uint32),
        ("padding", np.uint32),
    ]
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
        ("images", ctypes.c_ubyte * (MAX_IMAGES * _IMAGE.itemsize)),  # MAX_IMAGES structs of the dtype _IMAGE
    )


class ImageFiller:
    """Fills slots with images and other leaves of a source. Several threads may use it."""

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
        self._staged_images = StagedRows(engine.device, _Images(source, images.leaf), threads=threads)
        self._decoders: dict[int, tuple[DeviceDecoder, threading.Lock]] = {}  # stream handle: its decoder
        self._lock = threading.Lock()
        self._device_images = self._host_images = 0
        recorder.register_counters("decoded_images", self._counters)

    def begin_pass(self) -> None:
        """Do nothing, because no rows stay on the device."""

    def only_enqueues(self, memory: CudaMemory) -> bool:
        """Return False, because a fill reads files."""
        return False

    def fill(self, memory: CudaMemory, layout: Layout, rows: RowSet) -> list[SkippedRow]:
        """Decode the images of these rows into the slot, and gather the other leaves.

        Return the rows whose images neither the device nor the host could decode. Good rows of their batches have
        replaced them. If a batch has no good row, this batch and the later batches are not repaired.
        """
        began = time.perf_counter()
        numbers = rows.numbers()
        contents = self._images.read(numbers)
        read_at = time.perf_counter()
        self._recorder.add_span("read", read_at - began, nbytes=sum(len(content or b"") for content in contents))
        with self._engine.fill_scope(memory):
            decoder, lock = self._decoder(memory)
            with lock:
                is_decoded = self._decode(decoder, memory, layout, contents, numbers)
            failed = self._decode_on_host(memory, layout, numbers, np.flatnonzero(~is_decoded))
            repair = RowRepair.of(failed, rows.count, layout.batch_rows)
            self._copy_images(memory, layout, repair)
            if self._other_leaves:
                destinations = [memory.destination(layout, leaf) for leaf in self._other_leaves]
                specs = [layout.specs[leaf] for leaf in self._other_leaves]
                self._staged_others.upload(memory.stream, destinations, specs, repair.apply_to_numbers(numbers))
        with self._lock:
            self._device_images += int(np.count_nonzero(is_decoded))
            self._host_images += int(np.count_nonzero(~is_decoded)) - len(failed)
        nbytes = rows.count * sum(spec.nbytes for spec in layout.specs)
        self._recorder.add_span("decode", time.perf_counter() - read_at, nbytes=nbytes)
        return failed

    def close(self) -> None:
        """Wait for queued fills, then release memory. No fill may follow."""
        with ExitStack() as stack:  # runs all callbacks, the last one first, even after an error
            for decoder, _ in self._decoders.values():
                stack.callback(decoder.close)
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
                decoder = DeviceDecoder(self._engine, self._images, self._channels)
                self._decoders[handle] = decoder, threading.Lock()
            return self._decoders[handle]

    def _decode(
        self, decoder: DeviceDecoder, memory: CudaMemory, layout: Layout, contents: Sequence[bytes | None], rows: Rows
    ) -> Array:
        """Decode images on the device. Return for each image whether the device decoded it."""
        is_decoded = np.zeros(len(contents), bool)
        for decoded in decoder.decode(contents, memory.stream):
            images = decoded[self._have_valid_size(decoded)]
            table = self._describe(images, np.asarray(row_numbers(rows))[images.positions])
            for start in range(0, len(table), MAX_IMAGES):
                self._queue_resize(memory, layout, table[start : start + MAX_IMAGES])
            is_decoded[images.positions] = True
        return is_decoded

    def _have_valid_size(self, images: DecodedImages) -> Array:
        """Return for each image whether it can become a row.

        If the source does not resize images, each image must have the size of a row. An image of another size counts as
        not decoded. The host then decodes it again and raises an error.
        """
        if self._images.resizes:
            return np.ones(len(images), bool)
        heights, widths = _upright_sizes(images)
        is_valid: Array = (heights == self._height) & (widths == self._width)
        return is_valid

    def _queue_resize(self, memory: CudaMemory, layout: Layout, table: Array) -> None:
        destination = memory.destination(layout, self._images.leaf)
        sizes = self._height, self._width, self._channels
        job = _ResizeJob(destination.pointer, destination.batch_stride, destination.batch_rows, *sizes)
        ctypes.memmove(job.images, table.ctypes.data, table.nbytes)
        self._resize.launch(memory.stream, job, blocks=len(table) * BLOCKS_PER_IMAGE, threads=THREADS)

    def _describe(self, images: DecodedImages, rows: Array) -> Array:
        """Return an array with the kernel's struct `Image` for each image. `rows` are the row numbers of the images."""
        table = np.zeros(len(images), _IMAGE)
        heights, widths = _upright_sizes(images)
        table["pixels"], table["line_stride"], table["pixel_stride"] = _upright_strides(images, self._channels)
        table["height"], table["width"], table["place"] = heights, widths, images.positions
        table["part_height"], table["part_width"] = heights, widths
        if self._images.find_boxes is not None:
            box = self._images.find_boxes(heights, widths, rows)
            table["top"], table["left"], table["part_height"], table["part_width"] = box
        return table

    def _decode_on_host(self, memory: CudaMemory, layout: Layout, numbers: Rows, positions: Array) -> list[SkippedRow]:
        """Decode the images at these positions on the host, and queue their upload.

        Return the rows whose images the host could not decode.
        """
        if not len(positions):
            return []
        leaf, rows = self._images.leaf, np.asarray(row_numbers(numbers))[positions]
        destination, spec = memory.destination(layout, leaf), layout.specs[leaf]
        return self._staged_images.upload_scattered(memory.stream, destination, spec, rows, positions)

    def _copy_images(self, memory: CudaMemory, layout: Layout, repair: RowRepair) -> None:
        """Queue copies of good images over the images that they replace."""
        if repair.replacements:
            destination = memory.destination(layout, self._images.leaf)
            targets = destination.addresses(np.fromiter(repair.replacements.keys(), np.int64))
            sources = destination.addresses(np.fromiter(repair.replacements.values(), np.int64))
            for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
                memory.stream.copy(target, source, destination.row_nbytes)


def _upright_sizes(images: DecodedImages) -> tuple[Array, Array]:
    """Return the heights and widths of the images after their EXIF orientation is applied."""
    is_transposed = images.orientations >= 5
    heights: Array = np.where(is_transposed, images.widths, images.heights)
    widths: Array = np.where(is_transposed, images.heights, images.widths)
    return heights, widths


# For each EXIF orientation (0 is unused), where the top left pixel of the upright image is in the decoded image:
# whether it is in the last line, and whether it is the last pixel of its line.
_BEGINS_AT_END = np.array([(0, 0), (0, 0), (0, 1), (1, 1), (1, 0), (0, 0), (1, 0), (1, 1), (0, 1)], bool)


def _upright_strides(images: DecodedImages, channels: int) -> tuple[Array, Array, Array]:
    """Return (pointers, line strides, pixel strides) of the upright images.

    A pointer is the address of the pixel at the top left. Strides are in bytes.
    """
    down, right = images.widths * channels, np.full(len(images), channels)
    from_bottom, from_right = _BEGINS_AT_END[images.orientations].T
    pointers = images.pointers + from_bottom * (images.heights - 1) * down + from_right * (images.widths - 1) * right
    down, right = np.where(from_bottom, -down, down), np.where(from_right, -right, right)
    is_transposed = images.orientations >= 5
    return pointers, np.where(is_transposed, right, down), np.where(is_transposed, down, right)


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


class _Images(_Leaves):
    """A source with only the images of another source.

    Unlike `_Leaves`, it lets the other source write the images directly to `out`.
    """

    def __init__(self, source: AbstractSource, leaf: int) -> None:
        super().__init__(source, [leaf])

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        targets = [spec.empty(row_count(rows)) for spec in self._source.specs]
        targets[self._leaves[0]] = out[0]
        self._source.gather(rows, targets)
