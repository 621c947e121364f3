"""`DeviceDecoder` decodes the JPEG images of a group into device memory."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.encoded_images import EncodedImages
from forebay.core.spec import Array
from forebay.engines.cuda.driver import Event, Stream
from forebay.engines.cuda.engine import CudaEngine
from forebay.engines.cuda.nvjpeg import JpegHeader, Nvjpeg

__all__ = ["DecodedImages", "DeviceDecoder"]

MAX_DECODED_NBYTES = 512 << 20  # bytes of images that are decoded at a time, unless one image is larger
# Failed calls of nvJPEG for one group, after which the host decodes the remaining images. One damaged file among 256
# causes 9 failed calls, because the decoder halves the images after each failure.
MAX_FAILURES = 32
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xff\xd9"
_ALIGNMENT = 256  # bytes; the address of the first pixel of an image is a multiple of this


@dataclass(frozen=True, slots=True)
class DecodedImages:
    """Decoded images in device memory, before their EXIF orientation is applied.

    Each array has one element per image. The channels of a pixel are neighbours in memory.
    """

    positions: Array  # indices of the rows in the group
    pointers: Array  # device addresses of the first pixels
    heights: Array
    widths: Array
    orientations: Array  # EXIF orientations, 1 to 8

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, which: Any) -> "DecodedImages":
        leaves = self.positions, self.pointers, self.heights, self.widths, self.orientations
        return DecodedImages(*(leaf[which] for leaf in leaves))


class DeviceDecoder:
    """Decodes JPEG images on one stream. One thread may use it at a time.

    The decoder divides the images of a group into parts, which use the same device memory. Before it overwrites a part,
    it waits until the stream has read this part.
    """

    def __init__(self, engine: CudaEngine, images: EncodedImages, channels: int) -> None:
        self._engine, self._images, self._channels = engine, images, channels
        self._nvjpeg = Nvjpeg(is_gray=channels == 1)
        self._were_read = Event(engine.device)  # fires when the stream has read the last part
        self._nbytes = self._pointer = 0
        self._owner: Any = None

    def decode(self, contents: Sequence[bytes | None], stream: Stream) -> Iterator[DecodedImages]:
        """Decode the images in several parts, and yield each part.

        The host must decode the images whose positions are in no part. Before the caller requests the next part, it
        must queue all work that reads the current part on `stream`. The caller may end the iteration early.

        If nvJPEG fails for one image of a call, it fails for all images of the call. This method then decodes the two
        halves of these images in separate calls.
        """
        positions, encoded, headers = self._parse(contents)
        if not positions:
            return
        heights, widths, orientations = np.array(headers, np.int64).T
        nbytes = -(-heights * widths * self._channels // _ALIGNMENT) * _ALIGNMENT
        parts, failures = list(_split(nbytes))[::-1], 0
        while parts and failures < MAX_FAILURES:
            part = parts.pop()
            ends = np.cumsum(nbytes[part])
            self._reserve(int(ends[-1]))
            pointers = self._pointer + ends - nbytes[part]
            try:
                is_decoded = self._nvjpeg.decode(encoded[part], pointers, widths[part] * self._channels, stream.handle)
                if is_decoded:
                    turns = orientations[part] if self._images.upright else np.ones(len(pointers), np.int64)
                    yield DecodedImages(np.array(positions[part]), pointers, heights[part], widths[part], turns)
            finally:  # after an error too: nvJPEG or the caller may have queued kernels that use the memory
                self._were_read.record(stream)
            failures += not is_decoded
            if not is_decoded and len(pointers) > 1:  # nvJPEG does not say which image failed
                middle, stop = part.start + len(pointers) // 2, part.start + len(pointers)
                parts += [slice(middle, stop), slice(part.start, middle)]

    def close(self) -> None:
        """Free the memory. All queued work must be done."""
        with ExitStack() as stack:
            stack.callback(self._were_read.close)
            stack.callback(self._nvjpeg.close)
            self._owner, self._nbytes = None, 0

    def _reserve(self, nbytes: int) -> None:
        """Wait until no kernel uses the device memory, and make it at least `nbytes` large."""
        self._were_read.wait()
        if nbytes > self._nbytes:
            self._owner, self._nbytes = None, 0
            self._pointer, self._owner = self._engine.allocate(nbytes)
            self._nbytes = nbytes

    def _parse(self, contents: Sequence[bytes | None]) -> tuple[list[int], list[bytes], list[JpegHeader]]:
        """Return positions, contents and headers of the images that the device decodes.

        Leave out a file without an end marker: it is incomplete, but the hardware would report no error.
        """
        positions, encoded, headers = [], [], []
        parse, max_pixels = self._nvjpeg.parse, self._images.max_pixels
        for position, content in enumerate(contents):
            if content is None or content[:2] != _JPEG_START or content[-2:] != _JPEG_END:
                continue
            header = parse(content)
            if header is not None and 0 < header.height * header.width <= max_pixels:
                positions.append(position)
                encoded.append(content)
                headers.append(header)
        return positions, encoded, headers


def _split(nbytes: Array) -> Iterator[slice]:
    """Yield parts of at most MAX_DECODED_NBYTES; a larger image is a separate part."""
    start, total = 0, 0
    for position, image_nbytes in enumerate(nbytes.tolist()):
        if position > start and total + image_nbytes > MAX_DECODED_NBYTES:
            yield slice(start, position)
            start, total = position, 0
        total += image_nbytes
    yield slice(start, len(nbytes))
